"""Counts which statements of PySyncObj our voters run, in a simulation.

    python -m tests.structure.library_use     a line per module of the library, and the whole

A statement is a node of the module's syntax tree inside a function; imports, definitions and
docstrings run once, or not at all, whatever is used. It counts as run if one of its lines was.
"""

import ast
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import pysyncobj

from tests.sim.simulation import simulate

LIBRARY: Final = Path(pysyncobj.__file__).resolve().parent
CORE: Final = "syncobj.py"
SEEDS: Final = range(1, 4)
STEPS: Final = 150

Lines = Mapping[str, set[int]]


class Use(NamedTuple):
    """How many statements of one module there are, and how many of them were run."""

    run: int
    there: int

    @property
    def percent(self) -> int:
        return round(100 * self.run / self.there) if self.there else 0


def statements(source: str) -> set[int]:
    """Return the first lines of all statements in functions."""
    found: set[int] = set()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                found.update(_lines(statement))
    return found


def _lines(statement: ast.stmt) -> Iterable[int]:
    for node in ast.walk(statement):
        is_definition = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        if isinstance(node, ast.stmt) and not (is_definition or is_docstring or is_import):
            yield node.lineno


def lines_run(work: Callable[[], object], folder: Path) -> Lines:
    """Return, by file name, the lines of the modules in ``folder`` that ``work`` runs."""
    seen: dict[str, set[int]] = {}
    own: dict[CodeType, set[int] | None] = {}

    def lines_of(code: CodeType) -> set[int] | None:
        if code not in own:
            path = Path(code.co_filename)
            inside = path.parent == folder
            own[code] = seen.setdefault(path.name, set()) if inside else None
        return own[code]

    def on_call(frame: FrameType, _event: str, _arg: Any) -> Callable[..., Any] | None:  # noqa: ANN401
        lines = lines_of(frame.f_code)
        if lines is None:
            return None

        def on_line(inner: FrameType, event: str, _arg: Any) -> Callable[..., Any]:  # noqa: ANN401
            if event == "line":
                lines.add(inner.f_lineno)
            return on_line

        return on_line

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        work()
    finally:
        sys.settrace(before)
    return seen


def library_use(seeds: Iterable[int] = SEEDS, steps: int = STEPS) -> Mapping[str, Use]:
    """Return the use of each module of the library by simulated voters."""

    def work() -> None:
        for seed in seeds:
            outcome = simulate(seed, steps=steps, mutant=None)
            assert not outcome.violation, outcome.violation

    seen = lines_run(work, LIBRARY)
    return {
        path.name: Use(len(there & seen.get(path.name, set())), len(there))
        for path in sorted(LIBRARY.glob("*.py"))
        if (there := statements(path.read_text(encoding="utf-8")))
    }


def total(uses: Iterable[Use]) -> Use:
    """Return the use of several modules together."""
    known = list(uses)
    return Use(sum(one.run for one in known), sum(one.there for one in known))


def main() -> None:
    uses = library_use()
    for name, use in (*uses.items(), ("all", total(uses.values()))):
        print(f"{name:20} {use.run:5} of {use.there:5} statements run: {use.percent:3} %")  # noqa: T201


if __name__ == "__main__":
    main()
