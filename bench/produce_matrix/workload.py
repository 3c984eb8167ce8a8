"""Describes what is produced: the rows of the matrix, each other than the base row in one thing."""

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, Literal

Flush = Literal["os", "sync"]

KIB: Final = 1 << 10
MIB: Final = 1 << 20
_BATCH_HEADER_BYTES: Final = 61
_RECORD_OVERHEAD_BYTES: Final = 12
"""The most that a record of 1,000 bytes or less takes beyond its value, without key and headers."""


@dataclass(frozen=True)
class Workload:
    """One row.

    ``flush``: what an acknowledgement promises. ``"sync"``: fsynced (Quorate's default; Kafka with
    ``flush.messages=1``). ``"os"``: written (``log.flush=os``; Kafka's default).
    """

    flush: Flush = "os"
    replicas: int = 3
    acks: Literal["1", "all"] = "all"
    batch_bytes: int = 64 * KIB
    record_bytes: int = 1_000
    partitions: int = 100
    codec: Literal["none", "lz4"] = "none"

    @property
    def records_per_batch(self) -> int:
        """The number of records that fit, so that a batch of 1 MiB is within
        ``message.max.bytes``."""
        room = self.batch_bytes - _BATCH_HEADER_BYTES
        return room // (self.record_bytes + _RECORD_OVERHEAD_BYTES)

    @property
    def payload_bytes(self) -> int:
        """Values in one batch, before compression: what throughput counts."""
        return self.records_per_batch * self.record_bytes

    @property
    def batches_in_flight(self) -> int:
        """Produced and not acknowledged, over all producers, at full speed."""
        return 32 if self.batch_bytes < MIB else 8

    def cells(self) -> dict[str, int | str]:
        """The row as the table names it."""
        return {
            "flush": self.flush,
            "RF": self.replicas,
            "acks": self.acks,
            "batch": "1 MiB" if self.batch_bytes == MIB else f"{self.batch_bytes // KIB} KiB",
            "record": f"{self.record_bytes} B",
            "partitions": self.partitions,
            "codec": self.codec,
        }

    @property
    def name(self) -> str:
        """The name of the row, which ``--rows`` matches, and which topics carry."""
        cells = self.cells()
        parts = [self.flush, f"rf{self.replicas}", f"acks-{self.acks}", cells["batch"]]
        parts += [cells["record"], f"{self.partitions}p", self.codec]
        return "-".join(str(part).lower().replace(" ", "") for part in parts)


_BASE: Final = Workload()
_SINGLE: Final = replace(_BASE, replicas=1, acks="1")
_WRITTEN: Final = (
    _BASE,
    replace(_BASE, batch_bytes=MIB),
    _SINGLE,
    replace(_SINGLE, batch_bytes=MIB),
    replace(_BASE, acks="1"),
    replace(_BASE, partitions=1),
    replace(_BASE, partitions=1, batch_bytes=MIB),
    replace(_BASE, partitions=10_000),
    replace(_BASE, record_bytes=100),
    replace(_BASE, record_bytes=100, batch_bytes=MIB),
    replace(_BASE, codec="lz4"),
    replace(_BASE, codec="lz4", batch_bytes=MIB),
)
_SYNCED: Final = tuple(replace(row, flush="sync") for row in _WRITTEN[:4])
ROWS: Final = (*_WRITTEN, *_SYNCED)
QUICK_ROWS: Final = (*_WRITTEN[:4], *_SYNCED[:2])


def rows(pattern: str | None, quick: bool) -> list[Workload]:
    """Rows whose name contains ``pattern`` (``*``: anything); None: the usual ones.

    Raises:
        ValueError: there is none.
    """
    if pattern is None:
        return list(QUICK_ROWS if quick else ROWS)
    found = [row for row in ROWS if fnmatchcase(row.name, f"*{pattern}*")]
    if not found:
        names = "\n  ".join(row.name for row in ROWS)
        raise ValueError(f"no row matches {pattern!r}; there are\n  {names}")
    return found
