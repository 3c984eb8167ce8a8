"""Standing readers: one thread per partition, to which no offset may ever seem to fall."""

import struct
import threading
from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.support.raw_client import FETCH, FETCH_VERSION, RawClient, string

_EVERY_S: Final = 0.1
_BYTES: Final = 1 << 20
_LIST_OFFSETS, _LIST_OFFSETS_VERSION, _LATEST = 2, 2, -1
_BATCH: Final = struct.Struct(">qiibIhi")


class Seen(NamedTuple):
    """The state of a partition as an answer to a fetch tells it."""

    error_code: int
    high_watermark: int
    stable_offset: int
    records: bytes


def fetch(client: RawClient, topic: str, partition: int, offset: int) -> Seen:
    """Fetch v4 of one partition, as a consumer."""
    body = struct.pack(">iiiibi", -1, 0, 1, _BYTES, 0, 1) + string(topic)
    body += struct.pack(">iiqi", 1, partition, offset, _BYTES)
    answer = client.call(FETCH, FETCH_VERSION, body)
    at = 4 + 4 + 2 + len(topic) + 4
    _, error, high_watermark, stable, aborted = struct.unpack_from(">ihqqi", answer, at)
    at += 30 + max(0, aborted) * 16
    (size,) = struct.unpack_from(">i", answer, at)
    return Seen(error, high_watermark, stable, answer[at + 4 : at + 4 + max(0, size)])


def latest(client: RawClient, topic: str, partition: int, *, committed: bool) -> int | None:
    """Ask ListOffsets v2 for the end of a partition; None while the broker does not know it.

    ``committed``: the last stable offset instead of the high watermark.
    """
    body = struct.pack(">ibi", -1, committed, 1) + string(topic)
    body += struct.pack(">iiq", 1, partition, _LATEST)
    answer = client.call(_LIST_OFFSETS, _LIST_OFFSETS_VERSION, body)
    error, _, offset = struct.unpack_from(">hqq", answer, 4 + 4 + 2 + len(topic) + 4 + 4)
    return None if error else int(offset)


class StandingReader:
    """Reads one partition to its end and on, from whichever broker leads it.

    High watermark and last stable offset are what ListOffsets says. An answer to a fetch may have
    an older high watermark, as in Kafka: a new leader learns of it from its followers; such answers
    are counted.
    """

    def __init__(self, addresses: Sequence[str], topic: str, partition: int) -> None:
        self.falls: list[str] = []
        self.answers = self.older_answers = 0
        self.high_watermark = self.stable_offset = self._fetched = 0
        self._addresses, self._topic, self._partition = addresses, topic, partition
        self._offset = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"reader {topic}-{partition}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            address = self._addresses[number % len(self._addresses)]
            number += 1
            try:
                with RawClient(address) as client:
                    self._read(client, address)
            except (OSError, AssertionError, struct.error):
                self._stop.wait(_EVERY_S)

    def _read(self, client: RawClient, address: str) -> None:
        """Read as long as this broker answers."""
        while not self._stop.is_set():
            seen = fetch(client, self._topic, self._partition, self._offset)
            if seen.error_code:
                self._stop.wait(_EVERY_S)
                return
            self.answers += 1
            self.older_answers += seen.high_watermark < self._fetched
            self._fetched = max(self._fetched, seen.high_watermark)
            self._offset = _end_of(seen.records, self._offset)
            high_watermark = latest(client, self._topic, self._partition, committed=False)
            stable_offset = latest(client, self._topic, self._partition, committed=True)
            self._note(address, high_watermark=high_watermark, stable_offset=stable_offset)
            self._stop.wait(_EVERY_S)

    def _note(self, address: str, **offsets: int | None) -> None:
        for name, now in offsets.items():
            before = getattr(self, name)
            if now is None:
                continue
            if now < before:
                where = f"{self._topic}-{self._partition} at {address}"
                self.falls.append(f"{where}: {name} fell from {before} to {now}")
            setattr(self, name, max(before, now))


def _end_of(records: bytes, offset: int) -> int:
    """Return the offset after the last whole batch."""
    at = 0
    while at + _BATCH.size + 4 <= len(records):
        base, length, *_, last_delta = _BATCH.unpack_from(records, at)
        if at + 12 + length > len(records):
            break
        offset = base + last_delta + 1
        at += 12 + length
    return offset
