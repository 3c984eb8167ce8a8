"""The parts that all benchmark scripts share: flags, repetition, tables, and a file of the figures.

A script declares its cases, measures each several times and reports medians::

    bench = Bench.from_command_line("Quorum writes", "ops/s and latency of metadata transactions")
    for concurrency in bench.pick(full=(1, 10, 100, 1000), quick=(1, 100)):
        samples = bench.repeat(lambda: measure(concurrency))
        bench.row({"in flight": concurrency}, samples)
    bench.finish()

Figures of a shared machine are only comparable within one run: quote ratios, not absolutes.
"""

import argparse
import json
import math
import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from bench._yardstick import Yardstick, measure_yardstick

T = TypeVar("T")

Cell = int | float | str
"""One cell of a row; floats are rounded to three significant digits when printed."""


def percentile(values: Sequence[float], fraction: float) -> float:
    """The nearest-rank percentile of ``values``; ``fraction`` from 0 to 1.

    Raises:
        ValueError: ``values`` is empty.
    """
    if not values:
        raise ValueError("no values to take a percentile of")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(fraction * len(ordered)) - 1 if fraction else 0)]


def machine_line() -> str:
    """One line that says what the figures were measured on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = ""
    if hasattr(os, "sysconf"):
        total_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        memory = f", {total_bytes / 2**30:.0f} GiB"
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{platform.system()} {platform.machine()}, {cores} cores{memory}{load}, "
        f"Python {platform.python_version()} of {platform.python_build()[1]}"
    )


def median_row(samples: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of every figure over repeated measurements of one case."""
    return {name: statistics.median(s[name] for s in samples) for name in samples[0]}


def format_table(rows: Sequence[Mapping[str, Cell]], order: Sequence[str] = ()) -> str:
    """The rows as aligned columns under their names; a cell that a row lacks stays empty.

    Columns stand as they are met first, after those in ``order`` that are met at all.
    """
    met = dict.fromkeys(name for row in rows for name in row)
    names = [*(name for name in order if name in met), *(name for name in met if name not in order)]
    cells = [[_text(row[name]) if name in row else "" for name in names] for row in rows]
    widths = [max(len(line[i]) for line in [names, *cells]) for i in range(len(names))]
    numeric = [all(isinstance(row.get(name, 0), int | float) for row in rows) for name in names]
    lines = [names, ["-" * width for width in widths], *cells]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in lines
    )


def shown(value: float) -> str:
    """Return three significant digits, all those before the point, and no exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _text(value: Cell) -> str:
    if isinstance(value, float):
        return shown(value)
    return f"{value:,}" if isinstance(value, int) else value


class Bench:
    """One benchmark run: its flags, its rows so far, and where they go."""

    def __init__(
        self,
        title: str,
        *,
        quick: bool,
        json_path: Path | None,
        repetitions: int,
        pattern: str | None = None,
        writes_page: bool = False,
    ) -> None:
        self.title = title
        self.quick = quick
        self.pattern = pattern
        """A pattern of the names of the rows to measure; None measures all."""
        self.writes_page = writes_page
        """Whether to bring the page of the docs up to date."""
        self.repetitions = repetitions
        self.rows: list[dict[str, Cell]] = []
        self.figures: dict[str, int | float] = {}
        self.column_order: Sequence[str] = ()
        self.machine = machine_line()
        """The machine, and its load before the run added its own."""
        self.yardstick: Yardstick | None = None
        """The speed of the machine when the run began; None if it was not measured."""
        self._json_path = json_path

    @classmethod
    def from_command_line(
        cls,
        title: str,
        description: str,
        arguments: Sequence[str] | None = None,
        *,
        selectable: bool = False,
        writes_page: bool = False,
        repetitions: int = 3,
    ) -> "Bench":
        """Read ``--quick``, ``--repeat N`` and ``--json FILE``; print what this is about, and a
        yardstick of the machine.

        ``selectable``: of its rows some can be picked, by ``--rows PATTERN``.
        ``writes_page``: it can bring a page of the docs up to date, which ``--docs`` asks for.
        ``repetitions``: measurements per case, unless the command line says otherwise.
        """
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--quick", action="store_true", help="fewer cases, less data, once")
        parser.add_argument(
            "--repeat", type=int, metavar="N", help=f"measurements per case ({repetitions})"
        )
        parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
        if selectable:
            parser.add_argument("--rows", metavar="PATTERN", help="only rows of such a name")
        if writes_page:
            parser.add_argument("--docs", action="store_true", help="update the table in docs/")
        flags = parser.parse_args(arguments)
        repetitions = flags.repeat or (1 if flags.quick else repetitions)
        bench = cls(
            title,
            quick=flags.quick,
            json_path=flags.json,
            repetitions=repetitions,
            pattern=flags.rows if selectable else None,
            writes_page=writes_page and flags.docs,
        )
        print(f"{title}: {description}\n{bench.machine}; medians of {repetitions}", flush=True)
        bench.yardstick = measure_yardstick()
        print(bench.yardstick.line(), flush=True)
        return bench

    def pick(self, *, full: T, quick: T) -> T:
        """The cases or sizes for this kind of run."""
        return quick if self.quick else full

    def repeat(self, measure: Callable[[], Mapping[str, float]]) -> dict[str, float]:
        """Medians of ``measure()``, a dictionary of figures, over this run's repetitions."""
        return median_row([measure() for _ in range(self.repetitions)])

    def row(self, case: Mapping[str, Cell], figures: Mapping[str, Cell]) -> None:
        """Add one row, and say so at once: a long run shows that it lives."""
        row = {**case, **figures}
        self.rows.append(row)
        name = ", ".join(
            value if isinstance(value, str) else f"{column} {value}"
            for column, value in case.items()
        )
        for column, value in figures.items():
            if not isinstance(value, str):
                self.figures[f"{name}: {column}"] = value
        shown = ", ".join(f"{name} {_text(value)}" for name, value in row.items())
        print(f"  {shown}", file=sys.stderr, flush=True)

    def finish(self) -> None:
        """Print the table, and write the figures, by name and as rows, if ``--json`` asks."""
        print(f"\n{format_table(self.rows, self.column_order)}", flush=True)
        if self._json_path is not None:
            self._json_path.parent.mkdir(parents=True, exist_ok=True)
            report = {
                "title": self.title,
                "machine": self.machine,
                "yardstick": self.yardstick._asdict() if self.yardstick else None,
                "figures": self.figures,
                "rows": self.rows,
            }
            self._json_path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
