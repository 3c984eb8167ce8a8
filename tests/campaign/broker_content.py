"""Reads a broker's data folder as a broker reads it, and compares it with what the folder held."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from quorate.broker.common.errors import KafkaError
from quorate.broker.log import ColdRead, LogCallbacks, LogManager, LogOptions, LogRead, PartitionLog
from quorate.broker.log.batches.record_batch import read_header
from quorate.broker.log.recovery.folder_identity import examine_folder, require_identity
from quorate.common.files.data_folder import DataFolderError, claimed_data_folder
from quorate.common.types import TopicIdPartition
from tests.campaign.outcome import Outcome, Verdict
from tests.campaign.refusals import refusal

SEGMENT_BYTES = 128 << 10
OPTIONS = LogOptions(segment_bytes=SEGMENT_BYTES, tail_bytes=0, reserve_bytes=64 << 10)
BROKER_ID, CLUSTER_ID = 1, "campaign"
NAMED = (DataFolderError, KafkaError, OSError)
"""The errors whose message the broker's process shows; of any other it shows a trace."""
_PIECE_BYTES = 1 << 20


class LogContent(msgspec.Struct):
    """The whole state of one log."""

    topic: str
    assigned_at: int
    start: int
    end: int
    high_watermark: int
    cleaned: int
    derived: tuple[str, ...]
    """Epochs, producers and transactions, as text."""
    batches: dict[int, bytes]
    damaged: dict[int, str] = {}
    """The messages of the errors that were raised instead of a batch, by offset."""


class BrokerContent(msgspec.Struct):
    """The whole state that a broker knows from its folder."""

    directory_id: bytes
    log_may_be_lost: bool
    logs: dict[TopicIdPartition, LogContent]


async def read_content(folder: Path) -> BrokerContent:
    """Open the folder as a broker does, and read everything."""
    with claimed_data_folder(
        folder, "broker", BROKER_ID, CLUSTER_ID, require_identity
    ) as directory_id:
        failures: list[Exception] = []
        callbacks = LogCallbacks(lambda logs: None, failures.append)
        store = await LogManager.open(folder, OPTIONS, callbacks)
        try:
            logs = {tip: await log_content(log) for tip, log in store.logs.items()}
            return BrokerContent(directory_id, store.log_may_be_lost, logs)
        finally:
            await store.close()


async def log_content(log: PartitionLog) -> LogContent:
    """Read everything that a log knows."""
    producers = sorted((number, repr(entry)) for number, entry in log.producers.items())
    content = LogContent(
        topic=log.topic,
        assigned_at=log.assigned_at,
        start=log.log_start_offset,
        end=log.log_end_offset,
        high_watermark=log.checkpointed_high_watermark,
        cleaned=log.cleaned_offset,
        derived=(
            f"epochs {log.leader_epochs.entries}",
            f"producers {producers}",
            f"open transactions {dict(log.transactions.ongoing)}",
            f"aborted {log.transactions.aborted(log.log_start_offset, log.log_end_offset)}",
        ),
        batches={},
    )
    await _read_batches(log, content)
    return content


async def _read_batches(log: PartitionLog, content: LogContent) -> None:
    at = log.log_start_offset
    while at < log.log_end_offset:
        try:
            read = await _read(log, at, _PIECE_BYTES)
        except KafkaError:
            try:
                read = await _read(log, at, 1)
            except KafkaError as error:
                here, at = _beside(log, at)
                content.damaged[here] = error.message
                continue
        data = memoryview(b"".join(read.chunks))
        while data:
            header = read_header(data)
            content.batches[header.base_offset] = bytes(data[: header.size])
            data = data[header.size :]
        if read.next_offset <= at:
            raise AssertionError(f"{log!r}: a read at {at} does not go on")
        at = read.next_offset


async def _read(log: PartitionLog, at: int, size: int) -> LogRead:
    while True:
        try:
            return log.read(at, size, log.log_end_offset)
        except ColdRead as cold:
            await cold.load()


def _beside(log: PartitionLog, at: int) -> tuple[int, int]:
    """Return the base offset of the batch that has ``at`` and cannot be read, and of the next."""
    bases = [one.base_offset for one in log.placed(0, log.log_end_offset)]
    here = max((base for base in bases if base <= at), default=at)
    return here, min((base for base in bases if base > at), default=log.log_end_offset)


class History(msgspec.Struct):
    """Every batch that ever was in a log, by base offset: what an old file may bring back."""

    batches: dict[TopicIdPartition, dict[int, set[bytes]]] = {}

    def add(self, tip: TopicIdPartition, batches: Mapping[int, bytes]) -> None:
        of_log = self.batches.setdefault(tip, {})
        for offset, data in batches.items():
            of_log.setdefault(offset, set()).add(data)

    def has(self, tip: TopicIdPartition, offset: int, data: bytes) -> bool:
        return data in self.batches.get(tip, {}).get(offset, ())


def judge(folder: Path, expected: BrokerContent, history: History) -> Verdict:
    """Open a damaged folder and compare it with what it held. Call it in a child process."""
    try:
        found = asyncio.run(read_content(folder))
    except NAMED as error:
        return refusal(folder, str(error))
    return compare(expected, found, history)


def compare(expected: BrokerContent, found: BrokerContent, history: History) -> Verdict:
    """Return what became of the content: the same, less and declared, or something else."""
    lost = found.log_may_be_lost
    wrong = [
        f"log {found.logs[tip].topic} of an unknown id" for tip in found.logs.keys() - expected.logs
    ]
    wrong = [] if lost and _were_there(found, expected, history) else wrong
    noticed = ["loss declared"] if lost else []
    for tip, log in expected.logs.items():
        there = found.logs.get(tip)
        name = f"{log.topic}-{tip.partition}"
        if there is None:
            if not lost:
                wrong.append(f"{name} is gone")
            continue
        wrong += [f"{name}: {what}" for what in _wrong_content(tip, log, there, history, lost)]
        noticed += [f"{name}: {message}" for message in there.damaged.values()]
    if found.directory_id != expected.directory_id:
        wrong.append("another directory id")
    if wrong:
        return Verdict(Outcome.DIFFERENT, tuple([*wrong, *noticed]))
    return Verdict(Outcome.HEALED if noticed else Outcome.SAME, tuple(noticed))


def _were_there(found: BrokerContent, expected: BrokerContent, history: History) -> bool:
    """Whether all logs that are not expected are older ones of this folder."""
    return all(tip in history.batches for tip in found.logs.keys() - expected.logs)


def _wrong_content(
    tip: TopicIdPartition, expected: LogContent, found: LogContent, history: History, lost: bool
) -> list[str]:
    """Return the differences that nobody has declared."""
    wrong = [
        f"batch at {offset} is not what was written"
        for offset, data in found.batches.items()
        if expected.batches.get(offset) != data and not (lost and history.has(tip, offset, data))
    ]
    if found.topic != expected.topic:
        wrong.append(f"its name is {found.topic!r}")
    if lost:
        return wrong
    missing = expected.batches.keys() - found.batches.keys() - found.damaged.keys()
    if missing:
        wrong.append(f"{len(missing)} batches are missing, from {min(missing)} on")
    wrong += [
        f"{field} is {getattr(found, field)}, not {getattr(expected, field)}"
        for field in ("assigned_at", "start", "end")
        if getattr(expected, field) != getattr(found, field)
    ]
    wrong += [
        f"{field} is {getattr(found, field)}, not {getattr(expected, field)}"
        for field in ("high_watermark", "cleaned")  # An older checkpoint does no harm.
        if getattr(expected, field) < getattr(found, field)
    ]
    wrong += [
        f"{_head(now, was)}, not {_head(was, now)}"
        for was, now in zip(expected.derived, found.derived, strict=True)
        if was != now
    ]
    return wrong


def _head(text: str, other: str) -> str:
    """Return the text around its first difference from another one."""
    at = next((n for n, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), 0)
    return f"{text.split(' ')[0]} …{text[max(0, at - 20) : at + 40]}…"


def verify(folder: Path) -> Sequence[str]:
    """Return what ``quorate log verify`` finds. Call it in a child process."""
    try:
        return [str(problem) for problem in examine_folder(folder).problems]
    except NAMED as error:
        return [f"refused: {error}"]


def read_all(copies: Sequence[Path]) -> list[BrokerContent]:
    """Read copies of a folder, which this changes."""
    return [asyncio.run(read_content(copy)) for copy in copies]
