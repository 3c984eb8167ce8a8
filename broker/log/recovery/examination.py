"""Examines a log folder that no broker uses, and reports its contents and all damage.

Every batch is read and checked, by ``pread``, so that damage to a file is reported and does not end
the process. Nothing is changed.
"""

import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.control_batches import decode_marker
from quorate.broker.log.batches.record_batch import BatchHeader, read_header
from quorate.broker.log.checkpoints.partition_row import PartitionRow
from quorate.broker.log.checkpoints.store_table import FILE_NAME, StoreTable
from quorate.broker.log.checkpoints.table_rows import TruncationRule
from quorate.broker.log.recovery.recovery import NEWER_SEGMENT
from quorate.broker.log.segments.batch_verification import batch_problem
from quorate.broker.log.segments.damage import DamagedSegment
from quorate.broker.log.segments.segment import is_unused, older_copy
from quorate.broker.log.segments.segment_contents import FooterDamaged, FooterPlace
from quorate.broker.log.segments.segment_file import SegmentFile
from quorate.broker.log.segments.segment_names import segment_id_of, segment_name
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2


class ExaminedBatch(msgspec.Struct, frozen=True, array_like=True):
    """A batch in a segment. The partition is given by its local number."""

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
    producer_epoch: int = -1
    transaction: str = ""
    """The role of the batch in its producer's transaction: "part", "commit", "abort", or empty."""
    problem: str = ""
    """The damage to the batch, or empty. If there is damage, the fields after ``size`` have no
    meaning."""


class SegmentReport(msgspec.Struct, kw_only=True):
    """The report about one segment file."""

    segment_id: int
    path: str
    size: int
    batches: list[ExaminedBatch] = []
    problem: str = ""
    """The reason why the file cannot be read at all, or empty."""
    is_sealed: bool = False
    """Whether it has a footer. The contents are then what the footer says."""
    page_problem: str = ""
    """Damage to the pages of a segment without footer, or empty. Batches may be missing."""
    footer_problem: str = ""
    """The reason why the footer cannot be used, or empty. The footer will then be written again."""


class LogProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem, and where it was found."""

    what: str
    segment: str = ""
    """The name of the file, or empty if the problem is about the folder as a whole."""
    topic: str = ""
    partition: int = -1
    offset: int = -1

    def __str__(self) -> str:
        where = f"{TopicPartition(self.topic, self.partition)} " if self.topic else ""
        at = f"at offset {self.offset}" if self.offset >= 0 else ""
        return ": ".join(filter(None, (self.segment, f"{where}{at}".strip(), self.what)))


class PartitionReport(msgspec.Struct, kw_only=True):
    """The log of one partition. ``end_offset`` is the offset up to which it has no gap."""

    topic: str
    partition: int
    topic_id: str
    log_start_offset: int
    end_offset: int
    batches: list[ExaminedBatch]
    number: int

    @property
    def size(self) -> int:
        return sum(batch.size for batch in self.batches)


class OpenTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that no marker has ended. Readers of committed records cannot read past its
    start."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int


def open_transactions(report: PartitionReport) -> list[OpenTransaction]:
    """Return the open transactions by first offset. If a transaction began before the start of the
    log, its first remaining batch counts."""
    found: dict[int, OpenTransaction] = {}
    for batch in report.batches:
        if batch.transaction in ("commit", "abort"):
            found.pop(batch.producer_id, None)
        elif batch.transaction:
            known = found.get(batch.producer_id)
            found[batch.producer_id] = OpenTransaction(
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                first_offset=batch.base_offset if known is None else known.first_offset,
                last_offset=batch.last_offset,
            )
    return sorted(found.values(), key=lambda one: one.first_offset)


class LogExamination(msgspec.Struct, kw_only=True):
    """The report about a whole folder."""

    segments: list[SegmentReport]
    partitions: list[PartitionReport]
    problems: list[LogProblem]


def examine(directory: Path) -> LogExamination:
    """Examine a folder, which the caller has locked (``quorate.common.files.data_folder``).

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR; the folder is no log folder, or its table cannot be read.
    """
    if not (directory / FILE_NAME).exists():
        raise KafkaError(
            errors_pb2.KAFKA_STORAGE_ERROR,
            f"{directory} has no {FILE_NAME}: is it the log.dir of a broker?",
        )
    with tempfile.TemporaryDirectory() as copy:
        table = StoreTable.open_copy(directory, Path(copy))
        try:
            rows, truncation_rules = table.partitions(), table.truncation_rules()
            known, last_id = table.segments(), table.last_segment_id()
            footers, commits = table.footers(), table.segment_commits()
        finally:
            table.close()
    segments = [
        _examined_segment(directory / segment_name(one), footers.get(one), commits.get(one, 0))
        for one in sorted(known)
    ]
    _note_strange_batches(segments, {row.number for row in rows})
    segments += _newer_segments(directory, known, last_id)
    problems = [*_unknown_files(directory, known, last_id), *_segment_problems(segments)]
    partitions = []
    by_number = _by_partition(segments)
    for row in sorted(rows, key=lambda row: (row.topic, row.partition)):
        report, gaps = _follow(row, by_number[row.number], truncation_rules.get(row.number, ()))
        partitions.append(report)
        problems += gaps
    return LogExamination(segments=segments, partitions=partitions, problems=problems)


def _newer_segments(
    directory: Path, known: Mapping[int, bool], last_id: int
) -> Iterator[SegmentReport]:
    """Yield the segments that show that the table is older than they are."""
    for path in sorted(directory.glob("segment-*.mdb")):
        segment_id = segment_id_of(path)
        if segment_id and segment_id > last_id and segment_id not in known and not is_unused(path):
            problem = f"newer than the table: {NEWER_SEGMENT}"
            size = path.stat().st_size
            yield SegmentReport(segment_id=segment_id, path=str(path), size=size, problem=problem)


def _unknown_files(
    directory: Path, known: Mapping[int, bool], last_id: int
) -> Iterator[LogProblem]:
    for path in sorted(directory.glob("segment-*.mdb")):
        segment_id = segment_id_of(path) or 0
        if segment_id not in known and (segment_id <= last_id or is_unused(path)):
            what = "not in the table: the next start removes it"
            yield LogProblem(what=what, segment=path.name)


def _segment_problems(segments: Iterable[SegmentReport]) -> Iterator[LogProblem]:
    for segment in segments:
        if segment.problem:
            yield LogProblem(what=segment.problem, segment=Path(segment.path).name)
        if segment.page_problem:
            what = f"{segment.page_problem}; batches may be lost here"
            yield LogProblem(what=what, segment=Path(segment.path).name)
        if segment.footer_problem:
            what = f"footer: {segment.footer_problem}; no batch is lost, the next start mends it"
            yield LogProblem(what=what, segment=Path(segment.path).name)


def _note_strange_batches(segments: Iterable[SegmentReport], numbers: Collection[int]) -> None:
    """Note damaged batches of no partition: the damage may be to the number itself."""
    for segment in segments:
        for batch in segment.batches:
            if batch.problem and batch.number not in numbers and not segment.is_sealed:
                segment.page_problem = segment.page_problem or (
                    f"a batch of the unknown partition number {batch.number}: {batch.problem}"
                )


_Found = list[tuple[SegmentReport, ExaminedBatch]]


def _by_partition(segments: Iterable[SegmentReport]) -> defaultdict[int, _Found]:
    found: defaultdict[int, _Found] = defaultdict(list)
    for segment in segments:
        for batch in segment.batches:
            found[batch.number].append((segment, batch))
    return found


def _follow(
    row: PartitionRow, found: _Found, truncation_rules: Sequence[TruncationRule]
) -> tuple[PartitionReport, list[LogProblem]]:
    """Return the log as a broker would recover it, with its damaged batches and the first gap in
    it."""
    report = PartitionReport(
        topic=row.topic,
        partition=row.partition,
        topic_id=row.topic_id.hex(),
        log_start_offset=row.log_start_offset,
        end_offset=row.log_start_offset,
        batches=[],
        number=row.number,
    )
    problems: list[LogProblem] = []
    newest = 0
    for segment, batch in sorted(found, key=lambda one: (one[1].base_offset, -one[0].segment_id)):
        is_covered = batch.base_offset < report.end_offset and segment.segment_id <= newest
        if is_covered or _is_truncated(segment.segment_id, batch, truncation_rules):
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
        newest = segment.segment_id
        report.batches.append(batch)
        report.end_offset = batch.last_offset + 1
    return report, problems


def _problem(report: PartitionReport, segment: SegmentReport, offset: int, what: str) -> LogProblem:
    return LogProblem(
        what=what,
        segment=Path(segment.path).name,
        topic=report.topic,
        partition=report.partition,
        offset=offset,
    )


def _is_truncated(
    segment_id: int, batch: ExaminedBatch, truncation_rules: Sequence[TruncationRule]
) -> bool:
    return any(
        segment_id <= rule.through_segment_id and batch.base_offset >= rule.offset
        for rule in truncation_rules
    )


def _examined_segment(path: Path, place: FooterPlace | None, commit: int) -> SegmentReport:
    """Read and check every batch in the file, and compare the footer with them."""
    report = SegmentReport(segment_id=segment_id_of(path) or 0, path=str(path), size=0)
    try:
        file = SegmentFile(path)
    except FileNotFoundError:
        report.problem = "missing: its batches are lost here"
        return report
    try:
        report.size = file.size_bytes
        _examine_contents(report, file, place, commit)
    except DamagedSegment as damaged:
        report.problem = damaged.problem
    except KafkaError as error:
        report.problem = error.message
    finally:
        file.close()
    return report


def _examine_contents(
    report: SegmentReport, file: SegmentFile, place: FooterPlace | None, least_commit: int
) -> None:
    footer = None
    try:
        footer = None if place is None else file.footer(place, report.segment_id)
    except FooterDamaged as error:
        report.footer_problem = str(error)
        least_commit = 0 if place is None else place.commit
    problems: list[str] = []
    report.batches = [
        _checked_batch(number, base_offset, b"".join(map(file.value, values)), problem)
        for number, base_offset, values, problem in file.stored(report.segment_id, problems.append)
    ]
    if footer is None:
        if problem := older_copy(file.root().transaction, least_commit):
            problems.append(problem)
        report.page_problem = "; ".join(problems[:1])
        return
    report.is_sealed = True
    sealed = set(zip(footer.numbers, footer.base_offsets, strict=True))
    report.batches = [
        batch
        for batch in report.batches
        if not batch.problem or (batch.number, batch.base_offset) in sealed
    ]
    if not any(batch.problem for batch in report.batches):
        scanned = file.scan(report.segment_id, lambda _: None, on_problem=lambda _: None)
        scanned.written_at_ms = footer.written_at_ms
        if scanned.pack() != footer.pack():
            report.footer_problem = "it does not say what is in the segment"


def _checked_batch(number: int, base_offset: int, data: bytes, problem: str) -> ExaminedBatch:
    problem = batch_problem([data], base_offset, len(data)) or problem
    if problem:
        return ExaminedBatch(number, base_offset, len(data), problem=problem)
    header = read_header(data)
    return ExaminedBatch(
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
        producer_epoch=header.producer_epoch,
        transaction=_part_in_transaction(header, data),
    )


def _part_in_transaction(header: BatchHeader, data: bytes) -> str:
    if not header.is_control:
        return "part" if header.is_transactional else ""
    marker = decode_marker(header, data)
    if marker is None:
        return ""
    return "commit" if marker.committed else "abort"
