"""Counts how many source files one request passes through in real broker processes.

    python -m tests.structure.trips                  a table of all trips but the slow one
    python -m tests.structure.trips --list produce   the files of one trip, in the order of entry
    python -m tests.structure.trips --all            also the failover of a partition

"files" are files of the product that more than half of the repeated requests enter between the
moment the client sends the request and the moment its answer is there. "moves" says how often the
executing thread goes from one file to another, by calls and by returns (the median). A trip that
passes through more files than its limit fails the run, and with it `make check`. A trip that has a
goal below its limit still passes through too many files: its limit is today's number, so that it
cannot grow, and goes down with every file that is taken out, until it has reached the goal.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quorate.testing import RunningCluster, running_cluster
from tests.structure import requests
from tests.structure.counting import Passage, Summary, files_of, follow, more_than_half, summarise
from tests.structure.requests import Request, RequestFailed
from tests.structure.windows import Window, probed_environment
from tests.support.waiting import let_time_pass

REPEATS: Final = 15
WARM_UP: Final = 5
FAILOVERS: Final = 3
ATTEMPTS: Final = 10
"""For each repeat: some windows do not count, as ``CreateTopic`` says."""
PAUSE_S: Final = 0.05
"""What a request leaves to be done after its answer is done before the next window opens."""

LONG_TIMERS: Final = {
    "broker.session.timeout.ms": 60_000,
    "replica.fetch.wait.max.ms": 20_000,
    "session.timeout.max.ms": 60_000,
}
"""So that background work rarely falls into a window."""


@dataclass(frozen=True)
class Trip:
    """One kind of request.

    ``limit`` is the number of files that it may pass through, or None if they are only counted.
    ``goal`` is the number that it should pass through, where the limit is still above it.
    """

    name: str
    begin: Callable[[RunningCluster, int, list[int]], Request]
    """Given the cluster, its controller, and the other brokers."""
    limit: int | None = None
    goal: int | None = None
    slow: bool = False


TRIPS: Final = (
    # 25 and two more: the validation of records, and the walk over them as machine code.
    Trip("produce", lambda cluster, _, others: requests.produce(cluster, others[:1]), limit=27),
    Trip(
        "produce-replicated",
        lambda cluster, controller, others: requests.produce(cluster, [*others, controller]),
    ),
    # 43 and two more: the queue of control requests, its three kinds and the transport. Five more
    # describe the whole configuration of the topic in the answer (KIP-525), and three let the
    # consumer groups see that topics have changed (KIP-848). One rotates the audit log's files, and
    # one has the rules for names, which answers of Metadata need as well.
    Trip(
        "create-topic",
        lambda cluster, controller, others: requests.CreateTopic(
            cluster, controller, others[0], hosted=False
        ),
        limit=55,
        goal=40,
    ),
    Trip(
        "create-topic-hosted",
        lambda cluster, controller, others: requests.CreateTopic(
            cluster, controller, others[0], hosted=True
        ),
    ),
    Trip(
        "forwarded-alter-configs",
        lambda cluster, controller, others: requests.alter_configs(cluster, controller, others[0]),
        limit=60,
    ),
    Trip("range-read", lambda cluster, _, others: requests.range_read(cluster, others[0])),
    Trip(
        "failover",
        lambda cluster, controller, _: requests.Failover(cluster, controller),
        slow=True,
    ),
)


@dataclass(frozen=True)
class Count:
    """What a trip came to: a summary for each of its processes."""

    trip: Trip
    processes: Mapping[str, Summary]

    @property
    def files(self) -> int:
        return len(files_of(self.processes.values()))

    @property
    def moves(self) -> int:
        return sum(summary.moves for summary in self.processes.values())

    @property
    def excess(self) -> str | None:
        """What to say about a limit that is exceeded; None: it is not."""
        limit = self.trip.limit
        if limit is None or self.files <= limit:
            return None
        return (
            f"{self.trip.name} passes through {self.files} files; at most {limit} are allowed. "
            f"List them: python -m tests.structure.trips --list {self.trip.name}"
        )


def main() -> int:
    """Do what the arguments say; the exit status."""
    options = _options()
    chosen = [
        trip
        for trip in TRIPS
        if trip.name in (options.only, options.list)
        or (options.only is None and options.list is None and (options.all or not trip.slow))
    ]
    root = options.root.resolve()
    counts = [_recounted(count, root) for count in measure(chosen, root)]
    _say(table(counts))
    if options.list is not None:
        _say(listing(counts[0]))
    if options.json is not None:
        options.json.write_text(json.dumps([as_json(count) for count in counts], indent=2) + "\n")
    excesses = [excess for count in counts if (excess := count.excess) is not None]
    for excess in excesses:
        _say(excess)
    return 1 if excesses and not options.report_only else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.structure.trips",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [trip.name for trip in TRIPS]
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--only", metavar="TRIP", choices=names, help="count this trip alone")
    choice.add_argument("--list", metavar="TRIP", choices=names, help="and list its files")
    choice.add_argument("--all", action="store_true", help="count the slow trips too")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures to FILE")
    parser.add_argument("--report-only", action="store_true", help="succeed whatever is counted")
    parser.add_argument(
        "--root",
        metavar="DIR",
        type=Path,
        default=Path(__file__).parents[2],
        help="the repository whose files count (default: this one)",
    )
    return parser.parse_args()


def _recounted(count: Count, root: Path) -> Count:
    """Return the smaller of two counts if the first one exceeds its limit.

    On a busy machine background work falls into the windows, which adds files and takes none away.
    """
    if count.excess is None:
        return count
    return min(count, *measure([count.trip], root), key=lambda one: one.files)


def measure(trips: list[Trip], root: Path) -> list[Count]:
    """Counts the trips, one after the other, on one cluster; a slow one on a cluster of its own.

    A broker that is killed is to lead one partition, and not all that earlier trips have left.
    """
    together = [trip for trip in trips if not trip.slow]
    batches = [together, *([trip] for trip in trips if trip.slow)]
    return [count for batch in batches if batch for count in _measure_batch(batch, root)]


def _measure_batch(trips: list[Trip], root: Path) -> list[Count]:
    with (
        probed_environment(root) as sockets,
        running_cluster(brokers=3, voters=1, config=LONG_TIMERS, forked=False) as cluster,
    ):
        return [_measure(trip, cluster, sockets) for trip in trips]


def _measure(trip: Trip, cluster: RunningCluster, sockets: Path) -> Count:
    controller = cluster.controller_id()
    others = [broker for broker in cluster.broker_ids if broker != controller]
    request = trip.begin(cluster, controller, others)
    windows = {
        process: Window(sockets, cluster.broker_pid(broker) or 0)
        for process, broker in request.processes.items()
    }
    warm_up, repeats = (0, FAILOVERS) if trip.slow else (WARM_UP, REPEATS)
    least = repeats if trip.slow else more_than_half(repeats)
    for _ in range(warm_up):
        _repeat(request, {})
    recorded: list[dict[str, Passage]] = []
    for _ in range(repeats * ATTEMPTS):
        passages = _repeat(request, windows)
        if passages is not None:
            recorded.append(passages)
        if len(recorded) == repeats:
            break
    else:
        raise RequestFailed(f"{trip.name}: only {len(recorded)} windows count")
    for window in windows.values():
        window.disconnect()
    request.close()
    summaries = {
        process: summarise([one[process] for one in recorded], least) for process in windows
    }
    for process, summary in summaries.items():
        if not summary.rows:
            raise RequestFailed(
                f"{trip.name}, {process}: the probe has seen no file of the product"
            )
    return Count(trip, summaries)


def _repeat(request: Request, windows: Mapping[str, Window]) -> dict[str, Passage] | None:
    """Sends the request once; the passage through each process. None: this time does not count."""
    request.prepare()
    let_time_pass(PAUSE_S, "what a request leaves to be done after its answer is done")
    for window in windows.values():
        window.open()
    request.send()
    events = {process: window.close() for process, window in windows.items()}
    if not request.check():
        return None
    return {process: follow(recorded) for process, recorded in events.items()}


def table(counts: list[Count]) -> str:
    """One line for each trip."""
    rows = [("trip", "files", "moves", "limit", "goal")]
    for count in counts:
        trip, limit = count.trip, str(count.trip.limit or "none")
        rows.append((trip.name, str(count.files), str(count.moves), limit, str(trip.goal or limit)))
    return "\n".join(
        f"{name:26}{files:>6}{moves:>7}{limit:>7}{goal:>7}"
        for name, files, moves, limit, goal in rows
    )


def listing(count: Count) -> str:
    """The files of a trip, each with its functions, by process and in the order of first entry."""
    lines = []
    for process, summary in count.processes.items():
        lines += ["", f"{count.trip.name}, {process}: {len(summary.rows)} files"]
        lines += [f"{'':>4} {'functions':>9} {'calls':>6}  file  <- file that first called it"]
        for number, row in enumerate(summary.rows, 1):
            lines += [
                f"{number:>4} {len(row.functions):>9} {row.calls:>6}  {row.file}  <- {row.caller}",
                *(f"{'':>27}{calls:>4} x {name}" for name, calls in row.functions),
            ]
    return "\n".join(lines)


def as_json(count: Count) -> dict[str, object]:
    """The figures of a trip, for other programs."""
    return {
        "trip": count.trip.name,
        "files": count.files,
        "moves": count.moves,
        "limit": count.trip.limit,
        "goal": count.trip.goal,
        "processes": {
            process: [
                {
                    "file": row.file,
                    "caller": row.caller,
                    "calls": row.calls,
                    "functions": dict(row.functions),
                }
                for row in summary.rows
            ]
            for process, summary in count.processes.items()
        },
    }


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
