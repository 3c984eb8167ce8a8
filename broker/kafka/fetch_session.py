"""One fetch session: what a consumer fetches, and what it was told of it (KIP-227).

A request names only what changes, an answer only what is news: records, another offset of the
partition, or an error, which is told each time. Between two requests the session's positions stay
registered with their partitions, so that one without news costs nothing, however many there are.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from broker.kafka.cursor import MAX_ELEMENTS
from broker.kafka.fetch_request import FetchRequest
from broker.replication.api import FetchOutcome, FetchWant, Isolation, isolation_of
from broker.replication.polling import Poll, Position
from broker.security.authorizer import Authorizer, Rights
from broker.security.principal import KafkaPrincipal
from metadata_log.acls import AclOperation
from metadata_log.types import TopicPartition
from quorate_proto.v1 import errors_pb2

FIRST_EPOCH: Final = 0
"""Of a request that asks for a session."""
_LAST_EPOCH: Final = 2**31 - 1
_NEVER_JUDGED: Final = object()

Answers: TypeAlias = list[tuple[Position, FetchOutcome]]


class SessionOwner(NamedTuple):
    """Who began a session: nobody else may go on with it, or end it."""

    principal: KafkaPrincipal
    client_host: str


class FetchSession:
    """``turn``: held while a request is carried out; they are, one at a time, in their order."""

    def __init__(self, session_id: int, owner: SessionOwner, now_ms: int) -> None:
        self.id = session_id
        self.owner = owner
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.turn = asyncio.Lock()
        self.poll = Poll()
        self._positions: dict[TopicPartition, Position] = {}
        self._partitions_of: Counter[str] = Counter()
        self._refused: dict[Position, None] = {}
        self._judged_by: object = _NEVER_JUDGED
        self._epoch = FIRST_EPOCH
        self._isolation_level = 0

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def may_read_something(self) -> bool:
        return len(self._refused) < len(self._positions)

    def go_on(self, request: FetchRequest) -> int:
        """Take up what the request changes; an error code, with which nothing is taken up.

        An empty session, or one that would grow beyond what one request may name, is at its end.
        """
        if self.poll.is_closed:
            return errors_pb2.FETCH_SESSION_ID_NOT_FOUND
        if request.session_epoch != self._epoch:
            return errors_pb2.INVALID_FETCH_SESSION_EPOCH
        self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        for _, wants in request.topics:
            for want in wants:
                self._put(want)
        for tp in request.forgotten:
            self._forget(tp)
        if request.isolation_level != self._isolation_level:
            self._isolation_level = request.isolation_level
            self.poll.keep((), self._positions.values())
        if len(self) > MAX_ELEMENTS:
            return errors_pb2.FETCH_SESSION_ID_NOT_FOUND
        return errors_pb2.NONE

    def judge(self, authorizer: Authorizer, rights: Rights) -> None:
        """Set aside what its owner may not read."""
        if self._judged_by is _NEVER_JUDGED or self._judged_by is not authorizer.basis:
            self._judged_by = authorizer.basis
            readable = rights.topics(AclOperation.READ, self._partitions_of)
            self.poll.keep((), self._refused)
            self._refused = {}
            if len(readable) < len(self._partitions_of):
                positions = self._positions.items()
                self._refused = {p: None for tp, p in positions if tp.topic not in readable}
        for position in self._refused:
            self.poll.remove(position)

    def answer(self, found: Mapping[Position, FetchOutcome], refusal: FetchOutcome) -> Answers:
        """What of ``found`` is told, and ``refusal`` for what its owner may not read.

        What had no turn is first in the next answer, what had one comes last.
        """
        told: Answers = []
        waiting: list[Position] = []
        served: list[Position] = []
        for position, outcome in found.items():
            offsets = (
                outcome.high_watermark,
                outcome.last_stable_offset,
                outcome.log_start_offset,
            )
            is_news = position.told != offsets
            position.told = offsets
            if outcome.size:
                served.append(position)
                is_news = True
            elif outcome.error_code != errors_pb2.NONE or outcome.preferred_read_replica >= 0:
                waiting.append(position)
                position.told = None
                is_news = True
            elif position.want.fetch_offset < self._end_of_reads(outcome):
                waiting.append(position)
            if is_news:
                told.append((position, outcome))
        self.poll.keep(waiting, served)
        told += [(position, refusal) for position in self._refused]
        return told

    def close(self) -> None:
        """It has no news any more; a request that waits for some is answered."""
        self.poll.close(self._positions.values())

    def _end_of_reads(self, outcome: FetchOutcome) -> int:
        if isolation_of(self._isolation_level) is Isolation.READ_COMMITTED:
            return outcome.last_stable_offset
        return outcome.high_watermark

    def _put(self, want: FetchWant) -> None:
        position = self._positions.get(want.tp)
        if position is not None:
            self.poll.move(position, want)
            return
        self._positions[want.tp] = self.poll.add(want)
        topic = want.tp.topic
        if not self._partitions_of[topic]:
            self._judged_by = _NEVER_JUDGED
        self._partitions_of[topic] += 1

    def _forget(self, tp: TopicPartition) -> None:
        position = self._positions.pop(tp, None)
        if position is None:
            return
        self.poll.remove(position)
        self._refused.pop(position, None)
        self._partitions_of[tp.topic] -= 1
        if not self._partitions_of[tp.topic]:
            del self._partitions_of[tp.topic]


def by_topic(answers: Answers) -> Iterable[tuple[str, list[tuple[int, FetchOutcome]]]]:
    """Topic by name, and of each of its partitions the outcome."""
    topics: dict[str, list[tuple[int, FetchOutcome]]] = {}
    for position, outcome in answers:
        tp = position.want.tp
        topics.setdefault(tp.topic, []).append((tp.partition, outcome))
    return topics.items()
