"""Looking at a log folder that no broker uses: what is in it, and whether all of it is right.

A damaged file may end the process that reads it (LMDB reads by memory map), so each segment is
walked in a child process, which reports by a pipe. Nothing is changed.
"""

import os
import resource
import signal
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import lmdb
import msgspec
from crc32c import crc32c

from broker.errors import KafkaError
from broker.log.options import LogOptions
from broker.log.record_batch import CRC_FROM, HEADER_BYTES, MAGIC, read_header
from broker.log.segment import Segment
from broker.log.segment_files import segment_id_of, segment_name
from broker.log.table import FILE_NAME, StoreTable, Void
from broker.log.work import PartitionRow
from metadata_log.types import TopicPartition
from quorate_proto.v1 import errors_pb2

_PIPE_PIECE_BYTES: Final = 1 << 20
_LEAST_BYTES: Final = 8 << 10
"""LMDB's two root pages, where pages are small."""


class StoredBatch(msgspec.Struct, frozen=True, array_like=True):
    """A batch as a segment has it, by the number of its partition there."""

    number: int
    base_offset: int
    size: int
    last_offset: int = -1
    records: int = 0
    leader_epoch: int = -1
    max_timestamp_ms: int = -1
    compression: int = 0
    producer_id: int = -1
    base_sequence: int = -1
    problem: str = ""
    """What is wrong with it; the fields behind its size mean nothing then."""


class SegmentReport(msgspec.Struct, kw_only=True):
    """One segment file."""

    segment_id: int
    path: str
    size: int
    batches: list[StoredBatch] = []
    problem: str = ""
    """Why it cannot be read at all."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong, and where."""

    what: str
    segment: str = ""
    """The file; empty: of the folder as a whole."""
    topic: str = ""
    partition: int = -1
    offset: int = -1

    def __str__(self) -> str:
        where = f"{TopicPartition(self.topic, self.partition)} " if self.topic else ""
        at = f"at offset {self.offset}" if self.offset >= 0 else ""
        return ": ".join(filter(None, (self.segment, f"{where}{at}".strip(), self.what)))


class PartitionReport(msgspec.Struct, kw_only=True):
    """One partition's log; ``end_offset``: as far as it continues without a gap."""

    topic: str
    partition: int
    topic_id: str
    log_start_offset: int
    end_offset: int
    batches: list[StoredBatch]
    number: int

    @property
    def size(self) -> int:
        return sum(batch.size for batch in self.batches)


class Examined(msgspec.Struct, kw_only=True):
    """A whole folder."""

    segments: list[SegmentReport]
    partitions: list[PartitionReport]
    problems: list[Problem]


def examine(directory: Path) -> Examined:
    """Walk all of a folder; the caller holds it (``quorum.data_folder``).

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR; it is no log folder, or its table cannot be read.
    """
    if not (directory / FILE_NAME).exists():
        raise KafkaError(
            errors_pb2.KAFKA_STORAGE_ERROR,
            f"{directory} has no {FILE_NAME}: is it the log.dir of a broker?",
        )
    table = StoreTable.open(directory)
    try:
        rows, voids, known = table.partitions(), table.voids(), table.segments()
    finally:
        table.close()
    segments = [_examined_segment(directory / segment_name(one)) for one in sorted(known)]
    problems = [*_unknown_files(directory, known), *_segment_problems(segments)]
    partitions = []
    by_number = _by_partition(segments)
    for row in sorted(rows, key=lambda row: (row.topic, row.partition)):
        report, gaps = _follow(row, by_number[row.number], voids.get(row.number, ()))
        partitions.append(report)
        problems += gaps
    return Examined(segments=segments, partitions=partitions, problems=problems)


def _unknown_files(directory: Path, known: Mapping[int, bool]) -> Iterator[Problem]:
    for path in sorted(directory.glob("segment-*.mdb")):
        if segment_id_of(path) not in known:
            what = "not in the table: the next start removes it"
            yield Problem(what=what, segment=path.name)


def _segment_problems(segments: Iterable[SegmentReport]) -> Iterator[Problem]:
    for segment in segments:
        if segment.problem:
            yield Problem(what=segment.problem, segment=Path(segment.path).name)


_Found = list[tuple[SegmentReport, StoredBatch]]


def _by_partition(segments: Iterable[SegmentReport]) -> defaultdict[int, _Found]:
    found: defaultdict[int, _Found] = defaultdict(list)
    for segment in segments:
        for batch in segment.batches:
            found[batch.number].append((segment, batch))
    return found


def _follow(
    row: PartitionRow, found: _Found, voids: Sequence[Void]
) -> tuple[PartitionReport, list[Problem]]:
    """A partition's log as a start would find it, its wrong batches, and the first gap in it."""
    report = PartitionReport(
        topic=row.topic,
        partition=row.partition,
        topic_id=row.topic_id.hex(),
        log_start_offset=row.log_start_offset,
        end_offset=row.log_start_offset,
        batches=[],
        number=row.number,
    )
    problems: list[Problem] = []
    for segment, batch in found:
        if _is_void(segment.segment_id, batch, voids):
            continue
        if batch.problem:
            problems.append(_problem(report, segment, batch.base_offset, batch.problem))
        if problems or batch.last_offset < row.log_start_offset:
            continue
        spans_start = not report.batches and batch.base_offset < report.end_offset
        if batch.base_offset != report.end_offset and not spans_start:
            what = f"a gap: the next batch there is begins at {batch.base_offset}"
            problems.append(_problem(report, segment, report.end_offset, what))
            continue
        report.batches.append(batch)
        report.end_offset = batch.last_offset + 1
    return report, problems


def _problem(report: PartitionReport, segment: SegmentReport, offset: int, what: str) -> Problem:
    return Problem(
        what=what,
        segment=Path(segment.path).name,
        topic=report.topic,
        partition=report.partition,
        offset=offset,
    )


def _is_void(segment_id: int, batch: StoredBatch, voids: Sequence[Void]) -> bool:
    return any(
        segment_id <= void.through_segment_id and batch.base_offset >= void.offset for void in voids
    )


def _examined_segment(path: Path) -> SegmentReport:
    """What a child process finds in the file, or what became of the child."""
    report = SegmentReport(segment_id=segment_id_of(path) or 0, path=str(path), size=0)
    if not path.exists():
        report.problem = "missing: its batches are lost here"
        return report
    report.size = path.stat().st_size
    if report.size < _LEAST_BYTES:
        # LMDB would begin afresh in a file of no bytes.
        report.problem = f"truncated: {report.size} bytes are left"
        return report
    told, status = _in_child(path)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        report.problem = f"damaged or truncated: reading it ends the process with {name}"
    elif os.waitstatus_to_exitcode(status):
        report.problem = told.decode(errors="replace") or "damaged: it cannot be read"
    else:
        report.batches = msgspec.msgpack.decode(told, type=list[StoredBatch])
    return report


def _in_child(path: Path) -> tuple[bytes, int]:
    """What the child wrote, and its wait status. Only while this process has one thread."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _walk_and_exit(path, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    return told, os.waitpid(child, 0)[1]


def _walk_and_exit(path: Path, pipe: int) -> None:
    """In the child; does not return."""
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        segment = Segment.open(path, "sync", LogOptions().segment_bytes)
        told = msgspec.msgpack.encode(list(_checked(segment)))
        code = 0
    except KafkaError as error:
        told = error.message.encode()
    except lmdb.Error as error:
        told = f"damaged: {error}".encode()
    finally:
        with os.fdopen(pipe, "wb") as file:
            for begin in range(0, len(told), _PIPE_PIECE_BYTES):
                file.write(told[begin : begin + _PIPE_PIECE_BYTES])
        os._exit(code)


def _checked(segment: Segment) -> Iterator[StoredBatch]:
    for number, base_offset, chunks in segment.stored():
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        yield _checked_batch(number, base_offset, memoryview(data))


def _checked_batch(number: int, base_offset: int, data: memoryview) -> StoredBatch:
    def wrong(problem: str) -> StoredBatch:
        return StoredBatch(number, base_offset, len(data), problem=problem)

    if len(data) < HEADER_BYTES:
        return wrong(f"{len(data)} bytes are stored, a batch header has {HEADER_BYTES}")
    header = read_header(data)
    if header.magic != MAGIC or header.size != len(data) or header.base_offset != base_offset:
        return wrong(
            f"its header says offset {header.base_offset}, {header.size} bytes, magic "
            f"{header.magic}; stored are {len(data)} bytes"
        )
    if (found := crc32c(data[CRC_FROM:])) != header.crc:
        return wrong(f"its checksum is {found:#010x}, its header says {header.crc:#010x}")
    return StoredBatch(
        number,
        base_offset,
        len(data),
        last_offset=header.last_offset,
        records=header.record_count,
        leader_epoch=header.leader_epoch,
        max_timestamp_ms=header.max_timestamp,
        compression=header.compression,
        producer_id=header.producer_id,
        base_sequence=header.base_sequence,
    )
