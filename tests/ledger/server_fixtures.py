"""Whether a test has server processes: by the fixtures that it asks for, as its source says.

A test cannot claim it. It lies in a folder of tests against clusters, and one of its fixtures, or
one that they ask for in turn, starts voters and brokers. A full run looks at the processes
themselves as well (``pytest_runtest_call`` in ``tests/conftest.py``).
"""

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, TypeGuard

TESTS_ROOT: Final = Path(__file__).resolve().parents[1]
CLUSTER_ROOMS: Final = ("clients", "integration", "spark")
PLUGIN_FIXTURES: Final = frozenset({"quorate_cluster", "module_quorate_cluster"})
"""The fixtures of ``quorate.testing.pytest_plugin``."""
STARTERS: Final = frozenset({"running_cluster", "mixed_cluster", "QuorumCluster"})
"""The functions and classes that a fixture calls if it starts server processes by itself."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class NoSuchTest(LookupError):
    """The ledger names a test that is not there."""


def starts_servers(test_id: str) -> bool:
    """Whether the fixtures of the test ``tests/…/test_file.py::test_name`` start server processes.

    Raises:
        NoSuchTest: there is no such file, or no such function in it.
    """
    file, name = _split(test_id)
    functions = _functions_of(file)
    if name not in functions:
        raise NoSuchTest(f"{test_id}: no such function")
    room = file.relative_to(TESTS_ROOT).parts[0]
    return room in CLUSTER_ROOMS and _reaches_servers(functions[name], _fixtures(functions), set())


def is_slow(test_id: str) -> bool:
    """Whether the test, or all of its file, is left out of ``make test``.

    Raises:
        NoSuchTest: there is no such file, or no such function in it.
    """
    file, name = _split(test_id)
    if name not in _functions_of(file):
        raise NoSuchTest(f"{test_id}: no such function")
    marks = [ast.unparse(one) for one in _functions_of(file)[name].decorator_list]
    return any("mark.slow" in mark for mark in (*marks, *_marks_of_file(file)))


def _split(test_id: str) -> tuple[Path, str]:
    path, _, name = test_id.partition("::")
    file = TESTS_ROOT.parent / path
    if not file.is_file():
        raise NoSuchTest(f"{test_id}: no such file")
    return file, name


@cache
def _module(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _functions_of(file: Path) -> Mapping[str, _Function]:
    """Tests and fixtures of the file, and the fixtures of its folder."""
    shared = file.with_name("conftest.py")
    files = [shared, file] if shared.is_file() else [file]
    return {node.name: node for one in files for node in _module(one).body if _is_function(node)}


def _is_function(node: ast.stmt) -> TypeGuard[_Function]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _marks_of_file(file: Path) -> list[str]:
    return [
        ast.unparse(node.value)
        for node in _module(file).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]


def _fixtures(functions: Mapping[str, _Function]) -> dict[str, _Function]:
    return {
        name: node
        for name, node in functions.items()
        if any(ast.unparse(one).startswith("pytest.fixture") for one in node.decorator_list)
    }


def _reaches_servers(
    function: _Function, fixtures: Mapping[str, _Function], seen: set[str]
) -> bool:
    for argument in function.args.args:
        if argument.arg in seen:
            continue
        seen.add(argument.arg)
        if argument.arg in PLUGIN_FIXTURES:
            return True
        fixture = fixtures.get(argument.arg)
        if fixture is not None and (
            _calls_a_starter(fixture) or _reaches_servers(fixture, fixtures, seen)
        ):
            return True
    return False


def _calls_a_starter(fixture: _Function) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in STARTERS
        for node in ast.walk(fixture)
    )
