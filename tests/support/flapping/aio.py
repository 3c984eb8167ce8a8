"""Producers of aiokafka under an ISR that flaps."""

import asyncio
import threading
from collections.abc import Sequence
from functools import partial

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from tests.support.flapping.numbers import UNANSWERED_MAX, Numbers, transaction_ends_in_abort
from tests.support.flapping.story import Sent, Story

PATIENCE_S = 60.0
RECORDS_PER_TRANSACTION = 20


class AioLoad:
    """Runs one producer in an event loop of its own until it is stopped."""

    def __init__(
        self, name: str, bootstrap: str, topics: Sequence[str], every_s: float, transactional: bool
    ) -> None:
        self.name = name
        self.story = Story()
        self._bootstrap = bootstrap
        self._numbers = Numbers(name, topics)
        self._every_s = every_s
        self._transactional = transactional
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop producing, and wait until all is answered."""
        self._stop.set()
        self._thread.join(2 * PATIENCE_S)
        assert not self._thread.is_alive(), f"{self.name} does not stop"

    def _run(self) -> None:
        try:
            asyncio.run(self._produce())
        except Exception as error:
            self.story.failures.append(f"{self.name} ended: {error!r}")
            raise

    async def _produce(self) -> None:
        while not self._stop.is_set():
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                client_id=self.name,
                enable_idempotence=True,
                transactional_id=self.name if self._transactional else None,
                transaction_timeout_ms=20_000,
                retry_backoff_ms=5,
            )
            await producer.start()
            try:
                await (
                    self._write_transactions(producer)
                    if self._transactional
                    else self._write(producer)
                )
            except KafkaError as error:
                self.story.failures.append(f"{self.name} begins anew: {error!r}")
            finally:
                await producer.stop()

    async def _write(self, producer: AIOKafkaProducer) -> None:
        answers: set[asyncio.Future[object]] = set()
        while not self._stop.is_set():
            sent = self._numbers.next()
            answer = await self._send(producer, sent)
            answers.add(answer)
            answer.add_done_callback(partial(self._note, sent))
            answer.add_done_callback(answers.discard)
            await asyncio.sleep(self._every_s)
            while len(answers) > UNANSWERED_MAX:
                await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
        if answers:
            await asyncio.wait(answers, timeout=PATIENCE_S)

    def _note(self, sent: Sent, answer: "asyncio.Future[object]") -> None:
        error = answer.exception()
        if error is None:
            self.story.acknowledged.add(sent)
        else:
            self.story.failures.append(f"{self.name}: {sent}: {error!r}")

    async def _send(self, producer: AIOKafkaProducer, sent: Sent) -> "asyncio.Future[object]":
        lane = sent.lane
        answer: asyncio.Future[object] = await producer.send(
            lane.topic,
            key=lane.producer.encode(),
            value=b"%d" % sent.number,
            partition=lane.partition,
        )
        return answer

    async def _write_transactions(self, producer: AIOKafkaProducer) -> None:
        count = 0
        while not self._stop.is_set():
            count += 1
            wanted = [self._numbers.next() for _ in range(RECORDS_PER_TRANSACTION)]
            await self._write_one(producer, wanted, commit=not transaction_ends_in_abort(count))

    async def _write_one(
        self, producer: AIOKafkaProducer, wanted: Sequence[Sent], *, commit: bool
    ) -> None:
        is_committing = False
        try:
            await producer.begin_transaction()
            for sent in wanted:
                await self._send(producer, sent)
                await asyncio.sleep(self._every_s)
            is_committing = commit
            if commit:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
        except KafkaError:
            if is_committing:
                self.story.uncertain.append(frozenset(wanted))
            else:
                self.story.aborted |= set(wanted)
            raise
        (self.story.acknowledged if commit else self.story.aborted).update(wanted)
