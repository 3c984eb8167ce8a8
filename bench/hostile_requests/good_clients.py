"""A well-behaved producer and consumer in a process of their own, and how long they wait.

A record is due every ``EVERY_S``; the producer sends it with acks=all, the consumer reads it. As
Kafka's producers do, this one has one batch on its way and puts what becomes due meanwhile into the
next. Both latencies count from when a record was due, so that what waits behind a slow request is
slow too. Each is appended to a file at once, by the clock of the machine, which all processes
share.
"""

import multiprocessing
import os
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final, NamedTuple

from bench.hostile_requests.wire import Wire
from tests.support.raw_client import FETCH, PRODUCE, record_batch, string

EVERY_S: Final = 0.01
TOPIC: Final = "good"
USER: Final = "good"
_SAMPLE: Final = struct.Struct("=bdd?")
_START_TIMEOUT_S: Final = 30.0
_BATCH_RECORDS_MAX: Final = 100
"""The number of records that fit into a batch of Kafka's producers by default (16 KB)."""
_IN_A_ROW: Final = 8
_RETRY_S: Final = 0.02
_MARK: Final = b"due at "
_DUE: Final = struct.Struct(">d")


class Sample(NamedTuple):
    """One record: when it was due, when it was acknowledged or read, and whether with an error."""

    is_consumer: bool
    due_s: float
    done_s: float
    failed: bool

    @property
    def latency_ms(self) -> float:
        return (self.done_s - self.due_s) * 1_000


class GoodClients:
    """Reads what the clients have noted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._samples: list[Sample] = []
        self._lock = threading.Lock()

    def between(self, begin_s: float, end_s: float) -> list[Sample]:
        """The samples that were due or open in that time, and are done."""
        self._look()
        return [s for s in self._samples if s.due_s <= end_s and s.done_s >= begin_s]

    def wait_for(self, moment_s: float, timeout_s: float) -> bool:
        """Wait until a record that was due after ``moment_s`` is acknowledged, and one is read."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.are_served_after(moment_s):
                return True
            time.sleep(EVERY_S)
        return False

    def are_served_after(self, moment_s: float) -> bool:
        """Whether a record that was due after then is acknowledged, and one is read."""
        self._look()
        return len({s.is_consumer for s in self._samples[-1_000:] if s.due_s > moment_s}) == 2

    def wait_until_quiet(self, latency_ms: float, timeout_s: float) -> None:
        """Wait until some records in a row take no longer than this, or the time is over."""
        deadline = time.monotonic() + timeout_s
        begin_s = time.monotonic()
        while time.monotonic() < deadline:
            self._look()
            last = [s for s in self._samples[-2 * _IN_A_ROW :] if s.due_s > begin_s]
            if len(last) > _IN_A_ROW and all(s.latency_ms <= latency_ms for s in last):
                return
            time.sleep(EVERY_S)

    def forget(self) -> None:
        """Drop what has been read."""
        self._look()
        self._samples.clear()

    def _look(self) -> None:
        with self._lock, self._path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
            whole = len(data) // _SAMPLE.size * _SAMPLE.size
            self._read += whole
            for kind, due_s, done_s, failed in _SAMPLE.iter_unpack(data[:whole]):
                self._samples.append(Sample(bool(kind), due_s, done_s, failed))


@contextmanager
def good_clients(addresses: Sequence[str], path: Path) -> Iterator[GoodClients]:
    """Both at work while this is open.

    Raises:
        RuntimeError: they did not start.
    """
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    path.touch()
    process = context.Process(target=_run, args=(list(addresses), path, stop), daemon=True)
    process.start()
    try:
        clients = GoodClients(path)
        if not clients.wait_for(0.0, _START_TIMEOUT_S):
            raise RuntimeError("the producer and the consumer did not start")
        yield clients
    finally:
        stop.set()
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join()


def _run(addresses: Sequence[str], path: Path, stop: Event) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    over = threading.Event()
    threads = [
        threading.Thread(target=work, args=(addresses, file, over), daemon=True)
        for work in (_produce, _consume)
    ]
    for thread in threads:
        thread.start()
    stop.wait()
    over.set()
    for thread in threads:
        thread.join(2)


class _Connection:
    """A connection to the broker that leads the topic; after an error, to the next one."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses
        self._next = 0
        self._wire: Wire | None = None

    def call(self, key: int, version: int, body: bytes) -> bytes | None:
        """The answer, or None if there was none."""
        try:
            if self._wire is None:
                self._wire = Wire(self._addresses[self._next], USER)
            return self._wire.call(key, version, body)
        except OSError:
            self.move_on()
            return None

    def move_on(self) -> None:
        if self._wire is not None:
            self._wire.socket.close()
        self._wire = None
        self._next = (self._next + 1) % len(self._addresses)
        time.sleep(_RETRY_S)


def _produce(addresses: Sequence[str], file: int, over: threading.Event) -> None:
    connection = _Connection(addresses)
    due_s = time.monotonic()
    while not over.is_set():
        time.sleep(max(0.0, due_s + EVERY_S - time.monotonic()))
        due = _due_after(due_s, time.monotonic())
        due_s = due[-1]
        batch = record_batch(*(_MARK + _DUE.pack(one) + bytes(100) for one in due))
        body = struct.pack(">hhii", -1, -1, 30_000, 1) + string(TOPIC)
        answer = connection.call(PRODUCE, 3, body + struct.pack(">iii", 1, 0, len(batch)) + batch)
        failed = answer is None or answer[18:20] != b"\0\0"
        now_s = time.monotonic()
        os.write(file, b"".join(_SAMPLE.pack(0, one, now_s, failed) for one in due))
        if failed and answer is not None:
            connection.move_on()


def _due_after(last_s: float, now_s: float) -> list[float]:
    """Return when the records were due that the next batch has: at least one, and whatever else
    became due while the batch before was on its way, as a producer of Kafka's sends it.
    """
    count = min(_BATCH_RECORDS_MAX, max(1, int((now_s - last_s) / EVERY_S)))
    return [last_s + place * EVERY_S for place in range(1, count + 1)]


def _consume(addresses: Sequence[str], file: int, over: threading.Event) -> None:
    connection = _Connection(addresses)
    offset = 0
    while not over.is_set():
        body = struct.pack(">iiiibi", -1, 500, 1, 1 << 20, 0, 1) + string(TOPIC)
        answer = connection.call(FETCH, 4, body + struct.pack(">iiqi", 1, 0, offset, 1 << 20))
        now_s = time.monotonic()
        if answer is None:
            continue
        records = answer.split(_MARK)[1:]
        offset += len(records)
        for record in records:
            (due_s,) = _DUE.unpack_from(record)
            os.write(file, _SAMPLE.pack(1, due_s, now_s, False))
        if not records and answer[22:24] != b"\0\0":
            connection.move_on()
