"""The worst requests that Kafka's schemas allow, and what they do to a broker's other clients.

For every API and version that a broker serves, requests are made from kio's layouts: the most
elements of each array, the same one that exists again and again, others each time, the longest
names, tagged fields, extreme numbers. Each is sent by a user without any right and by a super user,
at the frame limit and below it, beside a producer (acks=all) and a consumer whose every latency is
noted. The worst of an API are then sent over 20 connections at once. A new cluster is started for
each API. ``--case ID`` sends one request alone.

Exits with 1 if a limit is exceeded.
"""

import argparse
import secrets
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench._support import Cell, format_table, machine_line
from bench.hostile_requests.cases import SIZES, Case, Role, cases_of
from bench.hostile_requests.measure import Limits, Result, bound_mb, summary
from bench.hostile_requests.report import is_beyond, markdown, row_of, show, write
from bench.hostile_requests.runs import Plan, Runs
from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.connection.requests import Api

ROLES: Final[tuple[Role, ...]] = ("nobody", "root")
MEMORY_SLACK: Final = 1.1
QUICK_PARTITIONS: Final = 50
PARTITIONS: Final = 500


def main(arguments: Sequence[str] | None = None) -> int:
    flags = _flags(arguments)
    apis = {api.name: api for api in api_table().values()}
    settings = dict(pair.split("=", 1) for pair in flags.set)
    bound, parts = bound_mb(settings)
    limits = Limits(flags.p99_ms, flags.max_ms, bound * MEMORY_SLACK)
    plan = _plan(flags, settings)
    print(
        f"Hostile requests, seed {plan.seed}\n{machine_line()}\n"
        f"memory bound: {parts} = {bound:.0f} MB"
    )
    if flags.case:
        chosen = {flags.case.split("/")[0]: [_case(apis, one) for one in [flags.case]]}
    else:
        chosen = {name: plan.cases(api) for name, api in apis.items() if flags.api in ("", name)}
    if not any(chosen.values()):
        print(f"no such API: {flags.api}; there are {', '.join(apis)}", file=sys.stderr)
        return 2
    if flags.list:
        print("\n".join(case.id for cases in chosen.values() for case in cases))
        return 0
    return _run(plan, chosen, limits, flags.json, flags.markdown)


def _run(
    plan: Plan,
    chosen: Mapping[str, Sequence[Case]],
    limits: Limits,
    json_path: Path | None,
    markdown_path: Path | None,
) -> int:
    begin_s = time.monotonic()
    runs = Runs(plan, limits)
    rows: list[dict[str, Cell]] = []
    found: dict[str, list[Result]] = defaultdict(list)
    for name, cases in chosen.items():
        for result in runs.results(cases, plan.connections):
            show(result, limits)
            found[name].append(replace(result, samples=result.samples[-20_000:]))
        for result in runs.again_together(list(found[name])):
            show(result, limits)
            found[name].append(result)
        rows.append(row_of(name, found[name], limits))
        print(f"{format_table([rows[-1]])}", file=sys.stderr, flush=True)
    quiet = summary(runs.quiet)
    print(f"\n{format_table(rows)}\n")
    print(
        f"without attack: p99 {quiet['p99 ms']:.1f} ms, max {quiet['max ms']:.1f} ms; "
        f"limits: p99 {limits.p99_ms:g} ms, max {limits.max_ms:g} ms, {limits.memory_mb:.0f} MB; "
        f"{sum(map(len, found.values()))} cases in {time.monotonic() - begin_s:.0f} s"
    )
    if markdown_path is not None:
        markdown_path.write_text(markdown(rows), encoding="utf-8")
    if json_path is not None:
        write(json_path, plan.seed, quiet, rows, found, limits)
    return 1 if any(is_beyond(results, limits) for results in found.values()) else 0


def _case(apis: Mapping[str, Api], case_id: str) -> Case:
    name, version, _, size, _ = case_id.split("/")
    if name in apis:
        for case in cases_of(apis[name], versions=[int(version)], sizes=[size], roles=ROLES):
            if case.id == case_id:
                return case
    raise SystemExit(f"no such case: {case_id}; --list shows them")


def _plan(flags: argparse.Namespace, settings: Mapping[str, object]) -> Plan:
    sizes: Sequence[str] = ("100m", "1m", "100k")
    older: Sequence[str] = ("1m",)
    if flags.quick:
        sizes, older = ("1m",), ()
    return Plan(
        seed=secrets.randbits(32) if flags.seed is None else flags.seed,
        sizes=flags.sizes.split(",") if flags.sizes else sizes,
        older_sizes=() if flags.newest else older,
        roles=ROLES if not flags.role else [flags.role],
        brokers=flags.brokers,
        connections=flags.connections,
        together=0 if flags.quick or flags.case else flags.together,
        partitions=QUICK_PARTITIONS if flags.quick else PARTITIONS,
        at_most=flags.at_most,
        settings=settings,
    )


def _flags(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="the newest versions, 1 MB each")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here too")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table here too")
    parser.add_argument("--repeat", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--api", default="", metavar="NAME", help="of this API only")
    parser.add_argument("--case", metavar="ID", help="this request only")
    parser.add_argument("--list", action="store_true", help="print the ids, and send nothing")
    parser.add_argument("--seed", type=int, metavar="N", help="of the order (random)")
    parser.add_argument("--sizes", metavar="A,B", help=f"of {', '.join(SIZES)}")
    parser.add_argument("--newest", action="store_true", help="only the newest versions")
    parser.add_argument("--role", choices=ROLES, help="only of this client")
    parser.add_argument("--at-most", type=int, default=0, metavar="N", help="cases per API")
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 3))
    parser.add_argument("--connections", type=int, default=1, metavar="N", help="at once")
    parser.add_argument(
        "--together", type=int, default=20, metavar="N", help="the worst again (20)"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--p99-ms", type=float, default=Limits.p99_ms)
    parser.add_argument("--max-ms", type=float, default=Limits.max_ms)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
