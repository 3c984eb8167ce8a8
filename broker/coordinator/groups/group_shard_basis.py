"""The base of a group shard: loading, lookups, execution of the groups' effects, and its end."""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.consumer_group_parts import ConsumerGroupParts
from quorate.broker.coordinator.groups.known_groups import (
    Group,
    GroupsInLog,
    KnownGroup,
    OpenTransactions,
)
from quorate.broker.coordinator.groups.shard_clock import ShardClock
from quorate.broker.coordinator.groups.share.share_group import ShareGroup
from quorate.broker.coordinator.groups.share_group_parts import ShareGroupParts
from quorate.broker.coordinator.groups.state import group_log_format as log_format
from quorate.broker.coordinator.groups.state.classic_group import ClassicGroup
from quorate.broker.coordinator.groups.state.committed_offsets import CommittedOffsets
from quorate.broker.coordinator.groups.state.group_basis import GroupLimits
from quorate.broker.coordinator.groups.state.group_effects import (
    GroupEffect,
    JoinAnswer,
    Persist,
    Reply,
    SyncAnswer,
    Token,
)
from quorate.broker.coordinator.groups.state.group_log_format import stored
from quorate.broker.coordinator.groups.state.members import NEVER_MS
from quorate.broker.coordinator.shards.coordinator_appender import CoordinatorAppender
from quorate.broker.coordinator.shards.coordinator_records import LogRecord, TransactionEnd
from quorate.broker.coordinator.shards.led_partition import LedPartition
from quorate.common.invariants import BrokenInvariant
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2

_log: Final = logging.getLogger(__name__)
_NAMED_MAX: Final = 5
"""The number of removed members that a line of the log names."""

_LEASE_PAUSE_S: Final = 0.5
"""The time after which a coordinator that may not answer looks again whether it may."""

Answer = JoinAnswer | SyncAnswer


class ShardDependencies:
    """The parts of a shard that do not belong to a particular request."""

    def __init__(
        self,
        name: str,
        log: LedPartition,
        limits: GroupLimits,
        clock: ShardClock,
        consumer_parts: ConsumerGroupParts,
        share_parts: ShareGroupParts,
    ) -> None:
        self.is_loading = True
        self.name = name
        self._log = log
        self._limits = limits
        self._clock = clock
        self._consumer_parts = consumer_parts
        self._share_parts = share_parts
        self._appends = CoordinatorAppender(log)
        self._groups: dict[str, KnownGroup] = {}
        self._waiting: dict[Token, asyncio.Future[Answer]] = {}
        self._token: Token = 0
        self._is_over = False
        self._open = OpenTransactions()
        self._ends_meanwhile: list[TransactionEnd] = []
        """Markers that were written during the load. The load may or may not have read them."""

    # -- life ------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Load the groups from the log; until then clients have to retry every request.

        A broker that has just restarted may lead before any controller has told it of the cluster.
        Groups would take their topics for deleted, and their members would lose all partitions, so
        this waits until the topics are known.
        """
        parts = self._consumer_parts
        await parts.topics.until_known()
        if self._has_ended():
            return
        in_log = GroupsInLog(self.name)
        self._ends_meanwhile.clear()
        async for entry in self._log.replay():
            in_log.take(entry)
        self._open = in_log.open
        now_ms = self._clock.now_ms()
        found = in_log.groups(self._limits, parts, self._share_parts, now_ms)
        async for known in parts.turns.through(found):
            self._groups[known.group.group_id] = known
        if self._has_ended():
            return
        self.is_loading = False
        for end in self._ends_meanwhile:
            self.end_transaction(end)
        for known in self._groups.values():
            self._begin(known)
            self._set_timer(known)
        _log.info("%s: coordinator of %d groups", self.name, len(self._groups))

    def end(self, error_code: int) -> None:
        """End because the leadership is lost or the broker stops; waiting requests get
        ``error_code``."""
        self._is_over = True
        for known in self._groups.values():
            known.close()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(KafkaError(error_code, f"{self.name} is led elsewhere"))
        self._appends.end(error_code)

    def _has_ended(self) -> bool:
        """Say whether the shard has ended, which may happen during any await of its load."""
        return self._is_over

    def end_transaction(self, end: TransactionEnd) -> None:
        """Commit or drop pending offsets, because the transaction's marker is committed."""
        if self.is_loading:
            self._ends_meanwhile.append(end)
            return
        self._open.end(end, self.offsets)

    # -- looking ---------------------------------------------------------------------------------

    def group(self, group_id: str) -> Group | None:
        known = self._groups.get(group_id)
        return None if known is None else known.group

    def __iter__(self) -> Iterator[KnownGroup]:
        return iter(self._groups.values())

    def offsets(self, group_id: str) -> CommittedOffsets:
        """Return the committed offsets of a group; empty if the group is unknown."""
        known = self._groups.get(group_id)
        return CommittedOffsets() if known is None else known.offsets

    def partitions(self) -> set[TopicPartition]:
        """Return all partitions that have a committed or a pending offset."""
        return {tp for known in self._groups.values() for tp in known.offsets.known()}

    # -- carrying out ----------------------------------------------------------------------------

    def _begin(self, known: KnownGroup) -> None:
        """Begin the work of a consumer group that was loaded from the log."""

    def _create(self, group_id: str) -> KnownGroup:
        known = KnownGroup(ClassicGroup(group_id, self._limits))
        known.touch(self._clock.wall_ms())
        self._groups[group_id] = known
        return known

    def _expect(self) -> "tuple[Token, asyncio.Future[Answer]]":
        self._token += 1
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[self._token] = future
        return self._token, future

    async def _answer(self, token: Token, future: "asyncio.Future[Answer]") -> Answer:
        try:
            return await future
        finally:
            self._waiting.pop(token, None)

    @contextmanager
    def _sound(self) -> Iterator[None]:
        """Give this replica of the log up if a group breaks an invariant: the next leader loads
        the groups from its own log.

        Raises:
            KafkaError: NOT_COORDINATOR, a group broke one.
        """
        try:
            yield
        except BrokenInvariant as broken:
            self._log.give_up(broken)
            raise KafkaError(errors_pb2.NOT_COORDINATOR, str(broken)) from broken

    def _carry_out(
        self, known: KnownGroup, group: ClassicGroup, effects: Iterable[GroupEffect]
    ) -> None:
        for effect in effects:
            match effect:
                case Reply(token, answer):
                    future = self._waiting.get(token)
                    if future is not None and not future.done():
                        future.set_result(answer)
                case Persist(attempt):
                    self._persist(known, group, attempt)
        self._set_timer(known)

    def _persist(self, known: KnownGroup, group: ClassicGroup, attempt: int) -> None:
        known.touch(self._clock.wall_ms())
        value = log_format.encode_group(stored(group, known.changed_at_ms))
        records = [LogRecord(log_format.encode_group_key(group.group_id), value)]
        append = self._appends.append if known.writes is None else known.writes.write_together
        outcome = append(records)
        outcome.add_done_callback(partial(self._persisted, known, group, attempt))

    def _persisted(
        self,
        known: KnownGroup,
        group: ClassicGroup,
        attempt: int,
        outcome: "asyncio.Future[int]",
    ) -> None:
        error = outcome.exception()
        if self._is_over or not self._is_present(known, group):
            return
        if error is not None and not isinstance(error, KafkaError):
            raise error
        code = errors_pb2.NONE if error is None else error.code
        with suppress(KafkaError), self._sound():
            effects = group.persisted(attempt, code, self._clock.now_ms())
            self._carry_out(known, group, effects)

    def _is_present(self, known: KnownGroup, group: Group) -> bool:
        """Return whether this is still the group of its name: it may have been deleted, or have
        changed its protocol."""
        return known.group is group and self._groups.get(group.group_id) is known

    def _set_timer(self, known: KnownGroup) -> None:
        """Set the group's one timer to its first deadline; heartbeats only move deadlines back."""
        due_ms = known.group.next_deadline_ms
        if due_ms == NEVER_MS or (known.timer is not None and known.timer_at_ms <= due_ms):
            return
        wait_s = max(0, due_ms - self._clock.now_ms()) / 1000
        self._expire_in(wait_s, known, due_ms)

    def _expire_in(self, wait_s: float, known: KnownGroup, due_ms: int) -> None:
        timer = asyncio.get_running_loop().call_later(wait_s, self._expire, known)
        known.set_timer(timer, due_ms)

    def _expire(self, known: KnownGroup) -> None:
        """Remove what has timed out, but nobody while this coordinator refuses all requests: it
        cannot tell who is silent from who is refused."""
        known.cancel_timer()
        if self._is_over:
            return
        if not self._log.has_valid_lease:
            self._expire_in(_LEASE_PAUSE_S, known, known.timer_at_ms)
        else:
            before = _member_ids(known.group)
            with suppress(KafkaError), self._sound():
                self._carry_out_expiry(known)
            _say_who_is_gone(known.group, before)

    def _carry_out_expiry(self, known: KnownGroup) -> None:
        """Remove members that are silent."""
        if isinstance(known.group, ClassicGroup):
            effects = known.group.expire(self._clock.now_ms())
            self._carry_out(known, known.group, effects)


def _member_ids(group: Group) -> list[str]:
    if isinstance(group, ShareGroup):
        return list(group.members)
    return [member.member_id for member in group.members]


def _say_who_is_gone(group: Group, before: Sequence[str]) -> None:
    """Log which of the members of ``before`` were removed."""
    gone = [member_id for member_id in before if group.members.get(member_id) is None]
    if gone:
        told = ", ".join(gone[:_NAMED_MAX])
        _log.info("group %r: %d members were silent: %s", group.group_id, len(gone), told)
