"""Share coordinators in memory, and the configuration of share groups."""

import asyncio
from collections.abc import Iterable, Sequence

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.group_keys import GROUP_KEYS
from quorate.broker.config.spec import BROKER_SPEC
from quorate.broker.coordinator.groups.consumer.group_topics import Topics
from quorate.broker.coordinator.groups.share_group_parts import ShareGroupParts
from quorate.broker.coordinator.share.dead_letters.dead_letter_batch import Source
from quorate.broker.coordinator.share.dead_letters.dead_letters import DeadLetters
from quorate.broker.coordinator.share.share_questions import (
    Answer,
    Delete,
    Initialize,
    Question,
    Read,
    Summarize,
    Write,
)
from quorate.broker.coordinator.share.share_states import PATIENCE_MS, ShareStates
from quorate.broker.coordinator.share.state.dead_records import DeadRecords
from quorate.broker.coordinator.share.state.stored_state import (
    NO_EPOCH,
    SharePartitionKey,
    StoredShareState,
)
from quorate.broker.quota.work_turns import WorkTurns
from quorate.common.configuration import ConfigKey, Configuration, T
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2


class FakeGroupConfig:
    """Every group has the values of the brokers, but for ``own``."""

    def __init__(self, **own: object) -> None:
        self.own = {name.replace("_", "."): value for name, value in own.items()}
        self.file: Configuration = BROKER_SPEC.parse(
            {"broker.id": "1", "quorum.bootstrap.servers": "localhost:1", "log.dir": "log"}
        )

    def group_value(self, group: str, key: ConfigKey[T]) -> T:
        if key.name in self.own:
            return key.parse(self.own[key.name])
        group_key = GROUP_KEYS.get(key.name)
        value: object = key.default if group_key is None else self.file[group_key.of_broker]
        return key.parse(value)


class FakeShareStates(ShareStates):
    """One share coordinator for everybody, which never fails unless it is told to.

    ``refusal`` is an error code for all questions. ``gate`` is waited for before an answer.
    """

    def __init__(self) -> None:
        self.kept: dict[SharePartitionKey, StoredShareState] = {}
        self.asked: list[Question] = []
        self.refusal = errors_pb2.NONE
        self.gate = asyncio.Event()
        self.gate.set()
        self.ends: dict[TopicPartition, int] = {}

    async def ask(self, question: Question, patience_ms: int = PATIENCE_MS) -> Answer:
        self.asked.append(question)
        await self.gate.wait()
        if self.refusal:
            return Answer(self.refusal, "told to refuse")
        try:
            return self._answer(question)
        except KafkaError as error:
            return Answer(error.code, error.message)

    def _answer(self, question: Question) -> Answer:
        key = question.key
        known = self.kept.get(key)
        match question:
            case Initialize(_, state_epoch, start_offset):
                if known is not None:
                    known.check(state_epoch, NO_EPOCH)
                self.kept[key] = StoredShareState(start_offset, state_epoch)
                return Answer()
            case Delete():
                self.kept.pop(key, None)
                return Answer()
        if known is None:
            code = (
                errors_pb2.NONE if isinstance(question, Summarize) else errors_pb2.INVALID_REQUEST
            )
            return Answer(code, "not initialized")
        match question:
            case Read(_, leader_epoch):
                known.check(NO_EPOCH, leader_epoch)
                known.lead_in(leader_epoch)
            case Write(_, write):
                known.check(write.state_epoch, write.leader_epoch)
                known.take(write)
        return Answer(
            state_epoch=known.state_epoch,
            leader_epoch=known.leader_epoch,
            start_offset=known.start_offset,
            final_records=known.final_records,
            batches=tuple(known.batches),
        )

    async def ask_all(self, questions: Sequence[Question]) -> list[Answer]:
        return [await self.ask(question) for question in questions]

    async def end_offsets(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.ends[tp] for tp in tps if tp in self.ends}

    def close(self) -> None:
        """Nothing is open."""


class FakeDeadLetters(DeadLetters):
    """Dead letters in memory. ``gate`` is waited for, and ``refusal`` is an error for all."""

    def __init__(self, *, on: bool = False) -> None:
        self.on = on
        self.written: list[DeadRecords] = []
        self.refusal = errors_pb2.NONE
        self.gate = asyncio.Event()
        self.gate.set()

    def are_on(self, source: Source) -> bool:
        return self.on

    async def write(self, source: Source, dead: Sequence[DeadRecords]) -> None:
        if dead:
            await self.gate.wait()
            if self.refusal:
                raise KafkaError(self.refusal, "told to refuse")
            self.written += dead


def share_parts(
    topics: Topics,
    states: ShareStates | None = None,
    config: FakeGroupConfig | None = None,
    turns: WorkTurns | None = None,
) -> ShareGroupParts:
    """What share groups share, with the default configuration."""
    return ShareGroupParts(
        config or FakeGroupConfig(), topics, turns or WorkTurns(), states or FakeShareStates()
    )
