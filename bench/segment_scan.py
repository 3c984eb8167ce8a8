"""Scanning a full segment before its footer is written: CPU time in bulk, and batch by batch."""

import struct
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from bench._support import Bench
from bench.log_append import make_batch
from quorate.broker.log.segments.bulk_scan import scan_in_bulk
from quorate.broker.log.segments.damage import DamagedBatch
from quorate.broker.log.segments.pending_batch import PendingBatch
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.segments.segment_contents import SegmentContents
from quorate.broker.log.segments.segment_file import SegmentFile
from quorate.common.files.lmdb_pages import raise_problem
from quorate.common.types import LeaderEpoch

_PARTITIONS: Final = 12
_BATCHES_PER_COMMIT: Final = 16
_ID: Final = 1


def filled(folder: Path, batch_bytes: int, segment_bytes: int) -> Path:
    """Write a segment of such batches, and return its path."""
    segment = Segment.create(folder, _ID, "os", segment_bytes + (64 << 20))
    batch = make_batch(batch_bytes)
    count = segment_bytes // batch_bytes
    pending = []
    for number in range(count):
        offset = number // _PARTITIONS
        placed = struct.pack(">q", offset) + batch[8:]
        pending.append(
            PendingBatch(
                number % _PARTITIONS, offset, offset, placed, LeaderEpoch(0), 0, batch_bytes
            )
        )
    for first in range(0, count, _BATCHES_PER_COMMIT):
        segment.append(pending[first : first + _BATCHES_PER_COMMIT])
    segment.close()
    return segment.path


def in_bulk(file: SegmentFile) -> int:
    """Scan as brokers do, and return the number of batches."""
    contents = SegmentContents(_ID, 0)
    scan_in_bulk(file._read_at_once, file.root(), contents, lambda: None)
    return len(contents)


def one_by_one(file: SegmentFile) -> int:
    """Scan as brokers do where something is unusual, and return the number of batches."""

    def refuse(damaged: DamagedBatch) -> None:
        raise damaged

    return len(file._scan_one_by_one(_ID, refuse, lambda: None, raise_problem))


def measure(path: Path, scan: Callable[[SegmentFile], int]) -> dict[str, float]:
    """Return the CPU time of one scan of the segment."""
    file = SegmentFile(path)
    try:
        begun_s = time.thread_time()
        batches = scan(file)
        took_s = time.thread_time() - begun_s
    finally:
        file.close()
    return {
        "CPU ms": 1e3 * took_s,
        "CPU us/batch": 1e6 * took_s / batches,
        "CPU s/GB": 1e9 * took_s / path.stat().st_size,
    }


def main() -> None:
    bench = Bench.from_command_line("Segment scan", "one full segment of 256 MiB, in memory")
    segment_bytes = bench.pick(full=256 << 20, quick=64 << 20)
    for size_kib in bench.pick(full=(1, 16, 64, 1024), quick=(16, 64)):
        with tempfile.TemporaryDirectory(prefix="segment-scan-") as folder:
            path = filled(Path(folder), size_kib << 10, segment_bytes)
            for name, scan in (("in bulk", in_bulk), ("one by one", one_by_one)):
                figures = bench.repeat(partial(measure, path, scan))
                bench.row({"batch KiB": size_kib, "scan": name}, figures)
    bench.finish()


if __name__ == "__main__":
    main()
