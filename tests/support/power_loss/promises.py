"""Keeps what a log store has promised: for each log what must be in it, and what may be.

A log is known by its ``key``, the bytes of its topic id; every batch in it by its base offset and
leader epoch, since the load begins an epoch whenever it writes an offset again. So the bytes of a
batch follow from where it is (``payload``), and a reader can tell the right one.
"""

import random
import zlib
from collections.abc import Sequence
from typing import Final

import msgspec

from quorate.broker.log.batches.record_batch import patched
from quorate.broker.log.options import Flush
from quorate.common.types import LeaderEpoch, TopicId
from tests.support.log_stores import batch
from tests.support.record_batches import assemble

SIZES: Final = (50, 50, 50, 700, 700, 3000, 3000, 9000, 9000, 30_000, 30_000, 300_000)
PRODUCING: Final = 2
"""Logs of every so many slots are written by idempotent producers, a new one in every epoch."""


WRITTEN, MERGED, NEITHER = range(3)
"""Versions of a batch: as it was appended, as it was written in place of others, wrong bytes."""


_NO_END: Final = 1 << 63


class Said(msgspec.Struct, array_like=True):
    """A mark: ``what`` begins, or has become durable, in the log ``key``. What a store has when it
    opens is durable: every log is "found", and then the store "opened".

    ``batches``: base and last offset, leader epoch and version of each.
    """

    what: str
    key: str = ""
    offset: int = 0
    batches: Sequence[tuple[int, int, int, int]] = ()


def topic_id(slot: int, generation: int) -> TopicId:
    return TopicId(f"slot{slot:04}-{generation:07}".encode())


def slot_of(key: str) -> int:
    return int(key[4:8])


def payload(key: str, base_offset: int, leader_epoch: int) -> bytes:
    """The batch of a log, before its leader gives it its place."""
    seed = zlib.crc32(f"{key} {base_offset} {leader_epoch}".encode())
    chance = random.Random(seed)
    producer = (-1, -1, -1)
    if slot_of(key) % PRODUCING:
        producer = (leader_epoch * 100 + slot_of(key), 0, base_offset)
    return batch(
        chance.choice([1, 1, 1, 5]),
        chance.choice(SIZES),
        seed=seed << 32 | base_offset,
        producer=producer,
    )


def stored(key: str, base_offset: int, leader_epoch: int) -> bytes:
    """The batch as it lies in the log."""
    data = payload(key, base_offset, leader_epoch)
    return bytes(patched(memoryview(data), base_offset, LeaderEpoch(leader_epoch)))


def merged(key: str, base_offset: int, last_offset: int, leader_epoch: int) -> bytes:
    """Return the batch that is written in place of those from one offset to another, as it lies in
    the log."""
    seed = zlib.crc32(f"{key} {base_offset} {last_offset} {leader_epoch}".encode())
    data = assemble(
        random.Random(seed).randbytes(40),
        base_offset=base_offset,
        last_delta=last_offset - base_offset,
        count=1,
    )
    return bytes(patched(memoryview(data), base_offset, LeaderEpoch(leader_epoch)))


def version(key: str, base_offset: int, last_offset: int, leader_epoch: int, data: bytes) -> int:
    """Return which version of the batch was found there."""
    if data == stored(key, base_offset, leader_epoch):
        return WRITTEN
    if data == merged(key, base_offset, last_offset, leader_epoch):
        return MERGED
    return NEITHER


class Promise:
    """The promises about one log."""

    def __init__(self, *, is_certain: bool, start: int = 0, durable_end: int = 0) -> None:
        self.must_exist = is_certain
        self.may_exist = True
        self.starts = {start}
        """The offsets at which it may begin."""
        self.durable_end = durable_end
        """The offset that it reaches at least."""
        self.sealed_end = start
        """The offset that it reaches even if segments are lost that were not synced
        (``log.flush=os``)."""
        self.may_hold: dict[int, set[tuple[int, int, int]]] = {}
        """(last offset, leader epoch, version) of what may be at a base offset."""
        self._cut_end = _NO_END
        """The offset at which a cut that has begun may end the log at any time, whatever was
        flushed beyond."""

    def note(self, said: Said) -> None:
        match said.what:
            case "append" | "merging":
                for base_offset, *batch in said.batches:
                    last_offset, epoch, version = batch
                    self.may_hold.setdefault(base_offset, set()).add((last_offset, epoch, version))
            case "merged":
                for base_offset, *batch in said.batches:
                    self._must_hold(base_offset, *batch)
            case "flushed":
                self.must_exist = True
                self.durable_end = min(said.offset, self._cut_end)
            case "sealed":
                self.sealed_end = said.offset
            case "deleting":
                self.must_exist = False
            case "deleted":
                self.may_exist = False
            case _:
                self._note_cut(said)

    def _must_hold(self, base_offset: int, last_offset: int, epoch: int, version: int) -> None:
        for covered in [at for at in self.may_hold if base_offset <= at <= last_offset]:
            del self.may_hold[covered]
        self.may_hold[base_offset] = {(last_offset, epoch, version)}

    def _note_cut(self, said: Said) -> None:
        match said.what:
            case "cutting":
                self._cut_end = said.offset
                self.durable_end = min(self.durable_end, said.offset)
                self.sealed_end = min(self.sealed_end, said.offset)
            case "cut":
                self._cut_end = _NO_END
                for base_offset in [each for each in self.may_hold if each >= said.offset]:
                    del self.may_hold[base_offset]
            case "starting":
                self.starts.add(said.offset)
            case "started":
                self.starts = {said.offset}
            case "emptying":
                self.durable_end = self.sealed_end = min(self.starts)
                self.starts.add(said.offset)
            case "emptied":
                self.may_hold.clear()
                self.starts = {said.offset}
                self.durable_end = self.sealed_end = said.offset
            case _:
                raise AssertionError(f"nobody says {said.what}")


class Promises:
    """The promises of one store, up to some time."""

    def __init__(self, flush: Flush) -> None:
        self._flush = flush
        self.logs: dict[str, Promise] = {}
        self.loss_is_settled = False
        self._found: dict[str, Promise] = {}

    def note(self, said: Said) -> None:
        match said.what:
            case "opened":
                self.logs, self._found = self._found, {}
            case "found":
                found = Promise(is_certain=True, start=said.offset, durable_end=said.offset)
                found.note(Said("append", batches=said.batches))
                if said.batches:
                    found.durable_end = said.batches[-1][1] + 1
                if self._flush == "os" and said.key in self.logs:
                    # What took the place of other batches may still be lost, and these come back.
                    known = self.logs[said.key]
                    found.sealed_end = max(said.offset, known.sealed_end)
                    for at, batches in known.may_hold.items():
                        found.may_hold.setdefault(at, set()).update(batches)
                self._found[said.key] = found
            case "create":
                self.logs[said.key] = Promise(is_certain=False)
            case "merged" if self._flush == "os":
                pass  # Until it is synced what it took the place of may come back.
            case "loss settled":
                self.loss_is_settled = True
            case _:
                self.logs[said.key].note(said)
