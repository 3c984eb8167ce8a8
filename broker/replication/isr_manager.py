"""Writes ISR changes to the quorum: many partitions in one transaction, one result for each.

The transaction is not atomic: each change succeeds or fails by itself. While one transaction is
under way, further proposals gather for the next. Results go back to the state machine that proposed
them. A conflict is resolved from a read made after it (rule 5, C1).
"""

import asyncio
import logging
from typing import Protocol

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.control.ports import Transactor
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.hosting.partition_table import IsrProposal, PartitionTable
from quorate.broker.replication.partition.leader_and_isr import LeaderAndIsr
from quorate.common.types import BrokerEpoch, MetadataOffset
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import (
    IsrChange,
    Operation,
    OperationResult,
    ResultCode,
    TransactionResult,
)
from quorate.quorum.quorum_errors import QuorumError, TransactionTooLarge

log = logging.getLogger(__name__)

CHANGES_PER_TRANSACTION_MAX = 4_000
"""Keeps a transaction well below 1 MiB."""

LOGGED_ONE_BY_ONE_MAX = 20
FRESH_READ_TIMEOUT_S = 10.0

CONFLICTS = frozenset({ResultCode.VERSION_CONFLICT, ResultCode.FENCED_LEADER_EPOCH})
"""The refusals that mean: the record is not what the leader thinks it is."""


class MetadataReader(Protocol):
    """The part of the metadata follower that a fresh read needs."""

    @property
    def image(self) -> Image: ...

    async def wait_for(self, offset: MetadataOffset) -> Image: ...


class IsrManager:
    """Takes the proposals of the partition table. One task writes them."""

    def __init__(
        self,
        table: PartitionTable,
        quorum: Transactor,
        metadata: MetadataReader,
        identity: BrokerIdentity,
    ) -> None:
        self._table = table
        self._quorum = quorum
        self._metadata = metadata
        self._identity = identity

    async def run(self) -> None:
        """Write what is proposed until cancelled."""
        proposals = self._table.isr_proposals
        while True:
            await proposals.wait()
            while batch := proposals.take(CHANGES_PER_TRANSACTION_MAX):
                await self._write(batch)

    async def _write(self, batch: list[IsrProposal]) -> None:
        if self._own_epoch() < 0:
            self._not_written(batch)
            return
        try:
            result = await self._quorum.transact(
                [Operation(records=(self._record(item),)) for item in batch], atomic=False
            )
        except TransactionTooLarge:
            if len(batch) == 1:
                self._outcome_unknown(batch, "the change alone is over the size of a transaction")
                return
            middle = len(batch) // 2
            await self._write(batch[:middle])
            await self._write(batch[middle:])
        except QuorumError as error:
            self._outcome_unknown(batch, f"{type(error).__name__}: {error}")
        except Exception as error:
            log.exception("writing ISR changes failed")
            self._outcome_unknown(batch, repr(error))
        else:
            await self._deliver(batch, result)

    def _own_epoch(self) -> BrokerEpoch:
        return self._identity.epoch or BrokerEpoch(-1)

    def _not_written(self, batch: list[IsrProposal]) -> None:
        """Keep the changes for later: the quorum refuses an unregistered broker (rule 9)."""
        log.info("%d ISR changes wait until this broker is registered", len(batch))
        now_ms = self._table.clock.now_ms()
        for hosted, proposal in batch:
            self._table.run(hosted, hosted.replica.isr_refused(proposal.attempt, now_ms))

    def _outcome_unknown(self, batch: list[IsrProposal], reason: str) -> None:
        log.warning("outcome of %d ISR changes is not known: %s", len(batch), reason)
        now_ms = self._table.clock.now_ms()
        for hosted, proposal in batch:
            self._table.run(hosted, hosted.replica.isr_unknown(proposal.attempt, now_ms))

    def _record(self, item: IsrProposal) -> IsrChange:
        hosted, proposal = item
        return IsrChange(
            topic=hosted.tp.topic,
            topic_id=hosted.tip.topic_id,
            partition=hosted.tip.partition,
            expected_version=proposal.expected_version,
            leader=self._table.broker_id,
            leader_broker_epoch=self._own_epoch(),
            leader_epoch=proposal.leader_epoch,
            isr=proposal.members,
        )

    async def _deliver(self, batch: list[IsrProposal], result: TransactionResult) -> None:
        conflicts: list[IsrProposal] = []
        now_ms = self._table.clock.now_ms()
        level = logging.INFO if len(batch) <= LOGGED_ONE_BY_ONE_MAX else logging.DEBUG
        if level == logging.DEBUG:
            log.info("the ISR of %d partitions changes", len(batch))
        for item, outcome in zip(batch, result.results, strict=True):
            hosted, proposal = item
            replica = hosted.replica
            if outcome.ok:
                log.log(level, "%s", _change(item))
                self._count(item)
                effects = replica.isr_committed(proposal.attempt, outcome.version, now_ms)
                self._table.run(hosted, effects)
            elif outcome.code in CONFLICTS:
                conflicts.append(item)
            elif outcome.code is ResultCode.OUTCOME_UNKNOWN:
                self._table.run(hosted, replica.isr_unknown(proposal.attempt, now_ms))
            else:
                _log_refused(item, outcome)
                self._table.traffic.isr_change_refused()
                self._table.run(hosted, replica.isr_refused(proposal.attempt, now_ms))
        if conflicts:
            await self._resolve(conflicts, result.offset)

    def _count(self, item: IsrProposal) -> None:
        grown = len(item.proposal.members) - len(item.hosted.replica.isr.committed)
        self._table.traffic.isr_changed(grown)

    async def _resolve(self, conflicts: list[IsrProposal], offset: MetadataOffset) -> None:
        """Read the records as they are after the conflict, and let the leaders decide again."""
        try:
            image = await asyncio.wait_for(self._metadata.wait_for(offset), FRESH_READ_TIMEOUT_S)
        except TimeoutError:
            log.warning("metadata offset %d was not reached after an ISR conflict", offset)
            image = None
        now_ms = self._table.clock.now_ms()
        for hosted, proposal in conflicts:
            replica = hosted.replica
            fresh = None if image is None else _leader_and_isr(image, hosted)
            if fresh is None:
                effects = replica.isr_unknown(proposal.attempt, now_ms)
            else:
                log.info("ISR change of %s met a newer record: %s", hosted.tp, fresh)
                effects = replica.isr_conflict(proposal.attempt, fresh, now_ms)
            self._table.run(hosted, effects)


def _leader_and_isr(image: Image, hosted: HostedPartition) -> LeaderAndIsr | None:
    topic = image.topic_by_id(hosted.tip.topic_id)
    if topic is None or hosted.tip.partition >= len(topic.partitions):
        return None
    return LeaderAndIsr.in_image(image, topic, hosted.tip.partition)


def _change(item: IsrProposal) -> str:
    hosted, proposal = item
    members = [member.broker_id for member in proposal.members]
    return f"ISR of {hosted.tp}: {list(hosted.replica.isr.committed)} -> {members}"


def _log_refused(item: IsrProposal, outcome: OperationResult) -> None:
    log.warning(
        "ISR change of %s was refused: %s %s", item.hosted.tp, outcome.code.name, outcome.detail
    )
