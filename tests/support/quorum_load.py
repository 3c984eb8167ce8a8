"""Concurrent clients of a quorum that write, compare-and-set, read and watch, and remember it all.

What is written once goes under a configuration key of its own. Registers are partitions: their
leaderAndISR has a version that only compare-and-set moves, and its leader epoch is the token of
who moved it. A few registers at a time are fought over, so that the history of each stays short.
"""

import asyncio
import itertools
import os
import random
import time
from collections.abc import Sequence
from typing import Final

from quorate.common.tls.identity import Security
from quorate.common.types import (
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderEpoch,
    MetadataOffset,
    TopicId,
    TopicPartition,
)
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.records import (
    BrokerRegistration,
    ConfigSet,
    ControllerClaim,
    ControllerEpochIs,
    NewPartition,
    Operation,
    PartitionChange,
    Record,
    ResultCode,
    TopicCreated,
    TransactionResult,
)
from quorate.quorum.client.quorum_client import QuorumClient
from quorate.quorum.quorum_errors import OutcomeUnknown, QuorumUnavailable, SessionLost
from tests.integration.quorum_writes import new_key, opening
from tests.support.history import Kind, Op, Outcome
from tests.support.quorum_watchers import Watcher
from tests.support.waiting import async_let_time_pass

SESSION_TIMEOUT_MS: Final = 6_000
WRITTEN_ENTITY: Final = "topics"
_BROKER: Final = BrokerId(1)
_EPOCH: Final = ControllerEpoch(1)
_TOPICS: Final = 32
_PARTITIONS: Final = 64
_REGISTERS_AT_A_TIME: Final = 3
_CHANGES_PER_REGISTER: Final = 50
_MOVED_ON: Final = (ResultCode.VERSION_CONFLICT, ResultCode.FENCED_LEADER_EPOCH)


def _topic(number: int) -> tuple[str, TopicId]:
    return f"registers-{number}", TopicId(number.to_bytes(16, "big"))


async def prepare(client: QuorumClient) -> None:
    """A controller that nobody takes over from, and the registers."""
    session = new_key()
    registration = BrokerRegistration(
        broker_id=_BROKER,
        session_id=session,
        incarnation_id=os.urandom(16),
        kafka=Endpoint("127.0.0.1", 1),
        grpc=Endpoint("127.0.0.1", 2),
        metadata_version_max=NEWEST_METADATA_VERSION,
    )
    claim = ControllerClaim(
        broker_id=_BROKER, session_id=session, timestamp_ms=1, controller_epoch=_EPOCH
    )
    partition = NewPartition(replicas=(_BROKER,), leader=_BROKER, isr=(_BROKER,))
    topics = [
        TopicCreated(
            name=name,
            topic_id=topic_id,
            partitions=(partition,) * _PARTITIONS,
            controller_id=_BROKER,
            controller_epoch=_EPOCH,
        )
        for name, topic_id in map(_topic, range(_TOPICS))
    ]
    operations = [opening(session), Operation(records=(registration, claim))]
    for result in (
        await client.transact(operations),
        await client.transact([_by_controller(topic) for topic in topics]),
    ):
        if not result.ok:
            raise RuntimeError(f"the registers cannot be made: {result}")


def _by_controller(record: Record) -> Operation:
    return Operation(records=(record,), conditions=(ControllerEpochIs(controller_epoch=_EPOCH),))


class QuorumLoad:
    """``clients`` clients with a few workers each; ``ops`` is what they did and were told."""

    def __init__(
        self,
        addresses: Sequence[str],
        seed: int,
        clients: int,
        workers: int,
        security: Security | None = None,
    ) -> None:
        self.ops: list[Op] = []
        self.acknowledged = 0
        """Transactions with a result; refused ones are among them."""
        self.watchers: list[Watcher] = []
        """Each client's own: its reads are served from what that has seen."""
        self._addresses = addresses
        self._security = security
        self._tokens = itertools.count(1)
        self._changes = 0
        self._seed = seed
        self._clients = clients
        self._workers = workers
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """The registers must have been prepared."""
        for number in range(self._clients):
            client = QuorumClient(
                self._addresses,
                description=f"client {number}",
                session_timeout_ms=SESSION_TIMEOUT_MS,
                security=self._security,
            )
            watcher = Watcher(f"client {number}", self._addresses, self._security)
            self.watchers.append(watcher)
            await client.start(deadline_ms=30_000)
            watcher.start()
            self._tasks.append(asyncio.create_task(self._run_client(number, client, watcher)))

    async def stop(self) -> None:
        """Every call gets its answer first."""
        self._stopping = True
        await asyncio.gather(*self._tasks)

    async def abandon(self) -> None:
        """Stop without waiting for answers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def check_running(self) -> None:
        """Raises what a client failed with: something it must never be told."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def _run_client(self, number: int, client: QuorumClient, watcher: Watcher) -> None:
        chance = random.Random(self._seed * 1_000 + number)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    worker = random.Random(chance.random())
                    group.create_task(self._work(client, watcher, worker))
        finally:
            await client.close()

    async def _work(self, client: QuorumClient, watcher: Watcher, chance: random.Random) -> None:
        while not self._stopping:
            kind = chance.choices((Kind.WRITE, Kind.CAS, Kind.READ), (45, 35, 20))[0]
            if kind is Kind.READ:
                await self._read(client, watcher, chance)
            elif kind is Kind.CAS and watcher.has_state:
                await self._compare_and_set(client, watcher, chance)
            else:
                await self._write(client, chance)
            await async_let_time_pass(chance.uniform(0.0, 0.02), "workers are not in step")

    # -- the three kinds -------------------------------------------------------------------------

    async def _write(self, client: QuorumClient, chance: random.Random) -> None:
        token = next(self._tokens)
        record = ConfigSet(
            entity_type=WRITTEN_ENTITY, entity_name=f"w{token}", key="token", value=str(token)
        )
        await self._transact(client, chance, Kind.WRITE, f"w{token}", token, record)

    async def _compare_and_set(
        self, client: QuorumClient, watcher: Watcher, chance: random.Random
    ) -> None:
        """Mostly on what it knows to be there, sometimes on what it knows to be gone."""
        register = self._register(chance)
        known = watcher.image.partition(register)
        version = 0 if known is None else known.version
        expected = max(0, version - 1) if chance.random() < 0.15 else version
        token = next(self._tokens)
        self._changes += 1
        record = PartitionChange(
            topic=register.topic,
            topic_id=watcher.image.topics[register.topic].topic_id,
            partition=register.partition,
            expected_version=expected,
            leader=_BROKER,
            leader_epoch=LeaderEpoch(token),
            isr=(_BROKER,),
            controller_id=_BROKER,
            controller_epoch=_EPOCH,
        )
        key = str(register)
        await self._transact(client, chance, Kind.CAS, key, token, record, expected)

    async def _transact(
        self,
        client: QuorumClient,
        chance: random.Random,
        kind: Kind,
        key: str,
        token: int,
        record: Record,
        expected: int = 0,
    ) -> None:
        """Now and then with so little patience that nobody can tell what became of it."""
        timeout_ms = chance.choice((40, 400, 30_000, 30_000))
        invoked = time.monotonic_ns()
        offset = 0
        try:
            result = await client.transact([_by_controller(record)], timeout_ms=timeout_ms)
        except OutcomeUnknown:
            outcome = Outcome.UNKNOWN
        except QuorumUnavailable:
            outcome = Outcome.NOT_APPLIED
        except SessionLost:
            outcome = Outcome.NOT_APPLIED
            await client.renew_session()
        else:
            outcome, offset = _outcome(kind, result), result.offset
            self.acknowledged += 1
        self.ops.append(
            Op(
                kind=kind,
                key=key,
                invoked=invoked,
                returned=time.monotonic_ns(),
                outcome=outcome,
                offset=offset,
                token=token,
                expected=expected,
                version=expected + 1,
            )
        )

    async def _read(self, client: QuorumClient, watcher: Watcher, chance: random.Random) -> None:
        """Read from what the client's own watch has seen, once that covers a linearizable
        offset."""
        register = self._register(chance)
        invoked = time.monotonic_ns()
        try:
            offset = await client.read_offset()
            self._note_read(Kind.FENCE, "", invoked, offset)
            async with asyncio.timeout(20):
                await watcher.reached(offset)
        except (QuorumUnavailable, TimeoutError):
            return  # It was told nothing.
        known = watcher.image.partition(register)
        seen = (0, 0) if known is None else (known.version, known.leader_epoch)
        self._note_read(Kind.READ, str(register), invoked, watcher.offset, *seen)

    def _note_read(
        self,
        kind: Kind,
        key: str,
        invoked: int,
        offset: MetadataOffset,
        version: int = 0,
        token: int = 0,
    ) -> None:
        self.ops.append(
            Op(
                kind=kind,
                key=key,
                invoked=invoked,
                returned=time.monotonic_ns(),
                outcome=Outcome.OK,
                offset=offset,
                token=token,
                version=version,
            )
        )

    def _register(self, chance: random.Random) -> TopicPartition:
        window = self._changes // (_REGISTERS_AT_A_TIME * _CHANGES_PER_REGISTER)
        number = window * _REGISTERS_AT_A_TIME + chance.randrange(_REGISTERS_AT_A_TIME)
        topic, partition = divmod(number % (_TOPICS * _PARTITIONS), _PARTITIONS)
        return TopicPartition(_topic(topic)[0], partition)


def _outcome(kind: Kind, result: TransactionResult) -> Outcome:
    if result.ok:
        return Outcome.OK
    if kind is Kind.CAS and result.results[0].code in _MOVED_ON:
        return Outcome.REFUSED
    raise AssertionError(f"a {kind.value} was refused: {result.results[0]}")
