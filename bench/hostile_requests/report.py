"""Prints and writes the results of a run: a line for each case, and a table of the APIs."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench._support import Cell, machine_line
from bench.hostile_requests.cases import Case
from bench.hostile_requests.measure import Limits, Result, summary


def row_of(api: str, results: Sequence[Result], limits: Limits) -> dict[str, Cell]:
    """One line of the table: the worst of all cases of an API."""
    together = [result for result in results if result.connections > 1]
    results = [result for result in results if result.connections == 1] or results
    samples = [sample for result in results for sample in result.samples]
    slowest = max(results, key=lambda result: result.worst_ms)
    largest = max(results, key=lambda result: result.peak_mb)
    latencies = summary(samples)
    return {
        "API": api,
        "cases": len(results),
        "p99 ms": latencies["p99 ms"],
        "max ms": latencies["max ms"],
        "CPU s": max(result.cpu_s for result in results),
        "by": _short(slowest.case),
        "outcome": slowest.outcome[:40],
        "peak MB": largest.peak_mb,
        "peak by": _short(largest.case),
        "left MB": results[-1].left_mb,
        "together ms": max((result.worst_ms for result in together), default=0.0),
        "together MB": max((result.peak_mb for result in together), default=0.0),
        "sessions lost": sum(not result.session_kept for result in results),
        "faults": sum(bool(result.faults) for result in results),
        "beyond": sum(bool(result.exceeds(limits)) for result in results),
    }


def markdown(rows: Sequence[Mapping[str, Cell]]) -> str:
    """The table for docs/SECURITY.md."""
    names = ("API", "cases", "p99 ms", "max ms", "peak MB", "together ms", "together MB")
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    for row in rows:
        cells = (row[name] for name in names)
        lines.append("| " + " | ".join(_rounded(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _rounded(cell: Cell) -> str:
    return f"{cell:,.0f}" if isinstance(cell, float) else str(cell)


def is_beyond(results: Sequence[Result], limits: Limits) -> bool:
    """Whether an API exceeds a limit, by one request or by the p99 over all of them."""
    samples = [one for result in results if result.connections == 1 for one in result.samples]
    return summary(samples)["p99 ms"] > limits.p99_ms or any(map(_exceeds(limits), results))


def _exceeds(limits: Limits) -> Callable[[Result], bool]:
    return lambda result: bool(result.exceeds(limits))


def _short(case: Case) -> str:
    return case.id.partition("/")[2]


def show(result: Result, limits: Limits) -> None:
    """One line at once: a long run shows that it lives, and what must be looked at."""
    times = f" x {result.connections}" if result.connections > 1 else ""
    beyond = "; ".join(result.exceeds(limits))
    print(
        f"  {'!' if beyond else ' '} {result.case.id}{times}: {result.worst_ms:.0f} ms, "
        f"{result.peak_mb:.0f} MB (left {result.left_mb:.0f}), {result.elapsed_s:.2f} s, "
        f"CPU {result.cpu_s:.2f} s, "
        f"{result.outcome}{'  <- ' + beyond if beyond else ''}",
        file=sys.stderr,
        flush=True,
    )
    for fault in result.faults[:3]:
        print(f"      log: {fault}", file=sys.stderr, flush=True)


def write(
    path: Path,
    seed: int,
    quiet: Mapping[str, float],
    rows: Sequence[Mapping[str, Cell]],
    found: Mapping[str, Sequence[Result]],
    limits: Limits,
) -> None:
    cases = [
        {
            "case": one.case.id,
            "connections": one.connections,
            "worst ms": one.worst_ms,
            "peak MB": one.peak_mb,
            "left MB": one.left_mb,
            "seconds": one.elapsed_s,
            "CPU s": one.cpu_s,
            "outcome": one.outcome,
            "session kept": one.session_kept,
            "faults": list(one.faults),
            "beyond": one.exceeds(limits),
        }
        for results in found.values()
        for one in results
    ]
    report = {
        "seed": seed, "machine": machine_line(), "quiet": dict(quiet), "rows": list(rows),
        "cases": cases,
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
