"""Runs the tools that come with Kafka, with Kafka's own Java client, and reads what they print."""

import re
import subprocess
from dataclasses import dataclass
from typing import Final

from bench.client_loads.load import PARTITIONS, Figures, ServersCost, Target
from bench.peers.kafka import KafkaInstallation

_JVM: Final = ("-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
"""The options of the Java machine, as the start scripts of the tools pass them."""
_TIMEOUT_S: Final = 600
_UNMEASURED_PART: Final = 0.2
"""The first part of the records, in which Java compiles the client, does not count for the tool."""
_STEADY: Final = re.compile(
    r"(?P<records>\d+) steady state records sent, (?P<rate>[\d.]+) records/sec .*?"
    r"(?P<p50>\d+) ms 50th, .*?(?P<p99>\d+) ms 99th"
)
_END_TO_END: Final = re.compile(
    r"Avg latency: (?P<mean>[\d.]+) ms\s+Percentiles: 50th = (?P<p50>\d+), 99th = (?P<p99>\d+)"
)


@dataclass(frozen=True)
class JavaProducer:
    """ProducerPerformance, as fast as it goes; latency is from ``send`` to its callback, and so
    most of it is the wait in the producer's own buffer of 32 MB."""

    java: KafkaInstallation
    record_bytes: int
    batch_bytes: int
    records: int
    partitions: int = PARTITIONS

    @property
    def name(self) -> str:
        return f"java-{self.record_bytes}b-{self.batch_bytes >> 10}kib"

    def measure(self, target: Target) -> Figures:
        """Send all records.

        Raises:
            RuntimeError: the tool failed, or a record was refused.
        """
        unmeasured = int(_UNMEASURED_PART * self.records)
        cost = ServersCost(target)
        printed = _run(
            self.java,
            "ProducerPerformance",
            *("--bootstrap-server", target.bootstrap, "--topic", target.topic),
            *("--num-records", str(self.records), "--record-size", str(self.record_bytes)),
            *("--warmup-records", str(unmeasured)),
            *("--throughput", "-1"),
            *("--command-property", "acks=all", f"batch.size={self.batch_bytes}"),
        )
        servers = cost.per_gigabyte(self.records * self.record_bytes)
        return steady_state(printed, self.records - unmeasured, self.record_bytes) | servers


@dataclass(frozen=True)
class JavaEndToEnd:
    """EndToEndLatency: one record at a time, from ``send`` until a consumer has it.

    The tool cuts latencies to whole milliseconds; its mean alone is exact.
    """

    java: KafkaInstallation
    record_bytes: int
    records: int
    partitions: int = PARTITIONS

    @property
    def name(self) -> str:
        return "java-end-to-end"

    def measure(self, target: Target) -> Figures:
        """Send and receive all records.

        Raises:
            RuntimeError: the tool failed.
        """
        cost = ServersCost(target)
        printed = _run(
            self.java,
            "EndToEndLatency",
            *("--bootstrap-server", target.bootstrap, "--topic", target.topic),
            *("--num-records", str(self.records), "--record-size", str(self.record_bytes)),
            *("--producer-acks", "all"),
        )
        return end_to_end(printed) | cost.per_record(self.records)


def steady_state(printed: str, records: int, record_bytes: int) -> Figures:
    """The figures in the last line of ProducerPerformance, which leaves its warm-up out.

    MB/s counts 10^6 bytes of values; the tool's own MB are 2^20.

    Raises:
        RuntimeError: the line is not there, or it counts fewer than ``records``: the tool goes on
            when a record is refused.
    """
    found = _found(_STEADY, printed)
    if int(found["records"]) != records:
        raise RuntimeError(f"{found['records']} of {records} records are acknowledged: {printed}")
    return {
        "MB/s": float(found["rate"]) * record_bytes / 1e6,
        "records/s": float(found["rate"]),
        "p50 ms": float(found["p50"]),
        "p99 ms": float(found["p99"]),
    }


def end_to_end(printed: str) -> Figures:
    """The figures that EndToEndLatency prints at its end.

    Raises:
        RuntimeError: they are not there.
    """
    found = _found(_END_TO_END, printed)
    return {
        "p50 ms": float(found["p50"]),
        "p99 ms": float(found["p99"]),
        "mean ms": float(found["mean"]),
    }


def _found(pattern: re.Pattern[str], printed: str) -> re.Match[str]:
    found = pattern.search(printed)
    if found is None:
        raise RuntimeError(f"the tool printed no result: {printed[-2_000:]}")
    return found


def _run(java: KafkaInstallation, tool: str, *arguments: str) -> str:
    ended = subprocess.run(
        [java.java, *_JVM, "-cp", java.class_path, f"org.apache.kafka.tools.{tool}", *arguments],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if ended.returncode:
        raise RuntimeError(f"{tool} failed: {ended.stdout[-2_000:]}{ended.stderr[-2_000:]}")
    return ended.stdout
