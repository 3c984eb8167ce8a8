"""``python -m quorate.demo``: shows the whole of Quorate in half a minute.

It starts 3 voters and 3 brokers, and creates a topic of 6 partitions with 3 replicas each. It
produces every line of the input with acks=all (``DEMO_INPUT`` is a file or folder; the default is
the project's own text files). In the middle it kills the controller's broker with kill -9. Then it
reads everything back with Spark by offset range.

The exit code is 0 if nothing was lost, 1 if records were lost or something failed, and 130 after
Ctrl-C. The demo leaves no process and no file behind.
"""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Final

from quorate.client.errors import QuorateError
from quorate.client.results import NewTopic
from quorate.cluster.local_cluster_errors import LocalClusterError
from quorate.demo.controller_kill import ControllerFailover, ControllerKill
from quorate.demo.demo_input import DemoInput, NoInput, find_demo_input
from quorate.demo.demo_producer import Acknowledgements, produce_lines
from quorate.demo.readback import BackgroundSpark, Readback, offset_ranges, read_back
from quorate.spark.java_home import JavaNotFound
from quorate.testing.running import RunningCluster, running_cluster

VOTERS: Final = 3
BROKERS: Final = 3
TOPIC: Final = "lines"
PARTITIONS: Final = 6
PRODUCE_AT_LEAST_S: Final = 6.0
KILL_AFTER_SHARE: Final = 1 / 3
EXTENSIONS_SHOWN: Final = 12


class DemoPrinter:
    """Prints what happens, with the seconds since the start."""

    def __init__(self) -> None:
        self._begin = time.monotonic()

    def say(self, message: str) -> None:
        sys.stdout.write(f"[{time.monotonic() - self._begin:5.1f} s] {message}\n")
        sys.stdout.flush()

    @staticmethod
    def plain(message: str = "") -> None:
        sys.stdout.write(f"{message}\n")
        sys.stdout.flush()


def main() -> int:
    """Run the demo, and return its exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    narrator = DemoPrinter()
    try:
        source = find_demo_input(os.environ.get("DEMO_INPUT", ""))
        with tempfile.TemporaryDirectory(prefix="quorate-demo-") as folder:
            return _run(narrator, source, Path(folder))
    except KeyboardInterrupt:
        narrator.say("interrupted; everything is stopped and removed")
        return 130
    except (NoInput, JavaNotFound, LocalClusterError, QuorateError, TimeoutError) as error:
        sys.stderr.write(f"demo: {error}\n")
        return 1


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _run(narrator: DemoPrinter, source: DemoInput, folder: Path) -> int:
    narrator.plain(
        f"Quorate: {VOTERS} voters, {BROKERS} brokers, topic {TOPIC!r} "
        f"with {PARTITIONS} partitions on {BROKERS} replicas each"
    )
    with (
        BackgroundSpark(folder / "spark", narrator.say) as spark,
        running_cluster(
            BROKERS, VOTERS, folder=folder / "cluster", progress=narrator.say
        ) as cluster,
    ):
        status = cluster.status()
        narrator.say(
            f"cluster is up: broker {status.controller_id} is the controller (epoch "
            f"{status.controller_epoch}), voter {status.quorum_leader} leads the quorum"
        )
        _create_topic(cluster)
        narrator.say(f"Spark {spark.session.version} is up")
        acknowledgements, produced = _produce(narrator, cluster, source)
        readback = _read(narrator, cluster, spark, acknowledgements)
        return _conclude(narrator, produced, acknowledgements, readback)


def _create_topic(cluster: RunningCluster) -> None:
    with cluster.admin() as admin:
        topic = NewTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=BROKERS)
        admin.create_topics([topic])[0].raise_for_error()


def _produce(
    narrator: DemoPrinter, cluster: RunningCluster, source: DemoInput
) -> tuple[Acknowledgements, int]:
    narrator.say(
        f"producing every line of {len(source.paths)} files ({source.size_bytes / 1e6:.1f} MB) "
        f"in {source.root} with acks=all"
    )
    acknowledgements = Acknowledgements()

    def on_takeover(takeover: ControllerFailover) -> None:
        narrator.say(
            f"broker {takeover.successor} took over as controller {takeover.takeover_ms:.0f} ms "
            f"after the kill (epoch {takeover.old_epoch} → {takeover.new_epoch})"
        )

    kill = ControllerKill(cluster, TOPIC, on_takeover)

    def on_progress(records: int, done_bytes: int) -> None:
        if kill.killed_at is None and done_bytes >= source.size_bytes * KILL_AFTER_SHARE:
            acknowledgements.watch_silence()
            victim, pid = kill.strike()
            narrator.say(f"after {records} lines: kill -9 of broker {victim} (pid {pid})")

    begin = time.monotonic()
    produced = produce_lines(
        cluster.bootstrap,
        TOPIC,
        source.lines(),
        source.size_bytes,
        acknowledgements=acknowledgements,
        at_least_s=PRODUCE_AT_LEAST_S,
        on_progress=on_progress,
    )
    seconds = time.monotonic() - begin
    led = kill.takeover().partitions_led
    pause_s = max((acknowledgements.silence_s.get(number, 0.0) for number in led), default=0.0)
    narrator.say(f"produced {produced} lines in {seconds:.1f} s")
    if pause_s:
        narrator.say(
            f"the {len(led)} partitions that the dead broker led were without acknowledgement for "
            f"at most {pause_s * 1000:.0f} ms"
        )
    return acknowledgements, produced


def _read(
    narrator: DemoPrinter,
    cluster: RunningCluster,
    spark: BackgroundSpark,
    acknowledgements: Acknowledgements,
) -> Readback:
    ranges = offset_ranges(cluster.bootstrap, TOPIC, PARTITIONS)
    shown = "  ".join(f"{number}:[{low},{high})" for number, (low, high) in ranges.items())
    narrator.say(f"Spark reads {shown}")
    readback = read_back(spark.session, cluster.bootstrap, TOPIC, ranges, acknowledgements.offsets)
    narrator.say("lines per file extension, counted by Spark:")
    return readback


def _conclude(
    narrator: DemoPrinter, produced: int, acknowledgements: Acknowledgements, readback: Readback
) -> int:
    counts = list(readback.lines_by_extension.items())
    for extension, count in counts[:EXTENSIONS_SHOWN]:
        narrator.plain(f"          {extension:<12}{count:>10}")
    if rest := counts[EXTENSIONS_SHOWN:]:
        narrator.plain(f"          {'others':<12}{sum(count for _, count in rest):>10}")
    if readback.extra:
        narrator.say(
            f"{readback.extra} more copies in the log: sent again because their acknowledgement "
            f"died with the broker"
        )
    for failure in sorted(set(acknowledgements.failures)):
        narrator.say(f"not acknowledged ({acknowledgements.failures.count(failure)}): {failure}")
    narrator.plain()
    narrator.plain(
        f"{produced} produced, {acknowledgements.count} acknowledged, "
        f"{readback.found} read by Spark, {readback.lost} lost"
    )
    return 1 if readback.lost or acknowledgements.failures else 0


if __name__ == "__main__":
    sys.exit(main())
