"""Guards of controller and replication, each with a way to take it out.

As in ``tests.sim.mutants``: only ever by replacing a function while a simulation runs, and the
removal of each must be noticed within ``WITHIN_SEEDS`` seeds.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

import quorate.metadata_log.apply
import quorate.metadata_log.rules.leader_and_isr as isr_rules
import quorate.metadata_log.rules.reassignment as reassignment_rules
import quorate.metadata_log.rules.topics as count_rules
from quorate.broker.control.broker_control_service import ControlFence
from quorate.broker.controller.managers import reassignment_manager
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.log.batches.record_batch import Batch
from quorate.broker.log.recovery.recovered_log import RecoveredLog
from quorate.broker.log.segments.batch_places import PartitionRun
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.state.producer_state_manager import ProducerStateManager
from quorate.broker.replication.commands.control_commands import ControlCommands
from quorate.broker.replication.fetching.truncator import Truncator
from quorate.broker.replication.partition.isr import IsrState
from quorate.broker.replication.partition.replica_state import ReplicaState
from quorate.broker.replication.serving import replica_fetch_session as fetch_session
from quorate.common.types import MetadataOffset, TopicPartition
from quorate.metadata_log.draft import Draft
from quorate.metadata_log.partitions import Topic
from quorate.metadata_log.records import IsrChange, Operation, Record
from quorate.metadata_log.rules.table import RULES, Rule
from quorate_proto.v1 import errors_pb2
from tests.sim.cluster.mutants_integrity import INTEGRITY_MUTANTS
from tests.sim.cluster.mutants_transactions import TRANSACTION_MUTANTS
from tests.sim.mutants import Mutant, Replacement, nothing

WITHIN_SEEDS: Final = 300


def _truncate_to_high_watermark() -> list[Replacement]:
    async def on_answer(self: Truncator, following: Any, answer: Any) -> None:
        if answer.error_code != errors_pb2.NONE:
            following.back_off(self._table.clock.now_ms())
            return
        if await self._cut(following, following.hosted.replica.high_watermark):
            self._done(following)

    return [(Truncator, "_on_answer", on_answer)]


def _fetch_epoch() -> list[Replacement]:
    def unchecked(_requested: int, _known: int) -> int:
        return errors_pb2.NONE

    def refuse(table: Any, hosted: Any, leader_epoch: int, replica_id: int) -> int:
        if not hosted.leads:
            return errors_pb2.NOT_LEADER_OR_FOLLOWER
        if replica_id not in hosted.replica.replicas:
            return errors_pb2.REPLICA_NOT_AVAILABLE
        return errors_pb2.NONE

    return [
        (fetch_session, "check_leader_epoch", unchecked),
        (fetch_session, "refuse_follower", refuse),
    ]


def _isr_cas() -> list[Replacement]:
    def whoever_asks(draft: Draft, offset: MetadataOffset, record: IsrChange) -> int:
        before = draft.partition(TopicPartition(record.topic, record.partition))
        if before is not None:
            record = msgspec.structs.replace(
                record, expected_version=before.version, leader=before.leader
            )
        return isr_rules.isr_change(draft, offset, record)

    rules = {**RULES, IsrChange: Rule(whoever_asks)}
    return [
        (quorate.metadata_log.apply, "RULES", rules),
        (isr_rules, "_require_leadership", nothing),
        (isr_rules, "_require_eligible", nothing),
    ]


def _max_broker_epoch() -> list[Replacement]:
    def check(self: ControlFence, header: Any, own_epoch: Any) -> int:
        if header.controller_epoch < self.controller_epoch:
            return errors_pb2.STALE_CONTROLLER_EPOCH
        self.observe_controller_epoch(header.controller_epoch)
        if own_epoch is not None:
            self._begin_incarnation(own_epoch)
        return errors_pb2.NONE

    return [(ControlFence, "check", check)]


def _maximal_isr() -> list[Replacement]:
    def count(self: ReplicaState) -> None:
        self._maximal_others = tuple(b for b in self.isr.committed if b != self.broker_id)

    return [(ReplicaState, "_count_maximal", count)]


def _resumed_isr() -> list[Replacement]:
    def alone(committed: Any, version: int, _replicas: Any) -> IsrState:
        return IsrState(committed, version)

    return [(IsrState, "resumed", staticmethod(alone))]


def _controller_epoch() -> list[Replacement]:
    def operation(self: ControllerTenure, *records: Record) -> Operation:
        return Operation(records=records)

    return [
        (ControllerTenure, "operation", operation),
        (quorate.metadata_log.apply, "_require_authority", nothing),
        (Draft, "require_controller", nothing),
    ]


def _init_deletes() -> list[Replacement]:
    return [(ControlCommands, "_set_aside_unlisted", nothing)]


def _reassignment_waits() -> list[Replacement]:
    def at_once(_partition: Any, _target: Any, _brokers: Any) -> bool:
        return True

    return [
        (reassignment_manager, "_is_in_sync", at_once),
        (reassignment_rules, "_require_end", nothing),
    ]


def _former_log() -> list[Replacement]:
    async def keep(_self: ControlCommands, _tip: Any, _removed_at: int) -> int:
        return errors_pb2.NONE

    return [(ControlCommands, "_discard_former", keep)]


def _epoch_floor() -> list[Replacement]:
    def _without(draft: Any, topic: Topic, first: int, offset: MetadataOffset) -> Topic:
        cut = without(draft, topic, first, offset)
        return msgspec.structs.replace(cut, leader_epoch_floor=topic.leader_epoch_floor)

    without = count_rules._without
    return [(count_rules, "_without", _without)]


def _producer_check() -> list[Replacement]:
    def find_nothing(_: ProducerStateManager, batches: Sequence[Batch]) -> list[None]:
        return [None] * len(batches)

    return [(ProducerStateManager, "find_duplicates", find_nothing)]


def _recovered_producers() -> list[Replacement]:
    def add_alone(
        self: RecoveredLog, run: PartitionRun, contents: Any, segment: Segment, *, is_recent: bool
    ) -> None:
        add(self, run, contents, segment, is_recent=False)

    add = RecoveredLog.add
    return [(RecoveredLog, "add", add_alone)]


def _truncated_producers() -> list[Replacement]:
    return [(ProducerStateManager, "truncate_from_end", nothing)]


def _offset_not_available() -> list[Replacement]:
    return [(ReplicaState, "knows_what_is_committed", property(lambda _: True))]


MUTANTS: Final = [
    Mutant("truncate-to-hw", "truncation by leader-epoch history", _truncate_to_high_watermark),
    Mutant("fetch-epoch", "the leader-epoch check on fetch", _fetch_epoch),
    Mutant("isr-cas", "the conditions of an ISR change: version, leader, epochs", _isr_cas),
    Mutant("max-broker-epoch", "the refusal of stale broker epochs", _max_broker_epoch),
    Mutant("maximal-isr", "pending ISR changes in the high watermark", _maximal_isr),
    Mutant("resumed-isr", "what a resumed leader may have asked for before", _resumed_isr),
    Mutant("controller-epoch", "the condition on the controller epoch", _controller_epoch),
    Mutant("reassignment-waits", "that a reassignment ends in sync", _reassignment_waits),
    Mutant("former-log", "the end of a removed partition's log", _former_log),
    Mutant("epoch-floor", "leader epochs above those of removed partitions", _epoch_floor),
    Mutant("latest-offset", "OFFSET_NOT_AVAILABLE at new leaders", _offset_not_available),
    Mutant("producer-check", "the check of idempotent producers' sequences", _producer_check),
    Mutant("recovered-producers", "what a restart learns of producers", _recovered_producers),
    Mutant("truncated-producers", "what a truncation takes back of them", _truncated_producers),
    Mutant("init-deletes", "INIT's deletion of what it does not list", _init_deletes),
    *TRANSACTION_MUTANTS,
    *INTEGRITY_MUTANTS,
]
