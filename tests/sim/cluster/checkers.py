"""The promises of DESIGN.md §9, looked at after every event.

The checker keeps a record of its own: of what was committed (``truth``), of who was controller in
which epoch, of every leadership. It looks into brokers, but only compares; it never helps them.
"""

import re
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Final

from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.log.batches.record_batch import iterate_batches
from quorate.broker.log.state.aborted_transactions import AbortedTransaction
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.manager import ReplicaManager
from quorate.broker.replication.partition.effects import ReplicaRole
from quorate.common.types import TopicIdPartition
from tests.sim.cluster.copies import CopiesChecker
from tests.sim.cluster.lives import Truths
from tests.sim.cluster.metadata_checker import MetadataChecker
from tests.sim.cluster.transaction_checker import ReplicaTransactions
from tests.sim.cluster.truth import Truth
from tests.sim.world import Violation, World
from tests.support.fetch_states import fetch_state_of

if TYPE_CHECKING:
    from tests.sim.cluster.machine import Machine
    from tests.sim.cluster.process import Process

REQUEST_ID: Final = re.compile(rb"request-\d{6}")


class _Seen:
    """The state of one partition in one process, as it was last seen."""

    __slots__ = ("checked", "epoch", "high_watermark", "hosted", "leads", "transactions")

    def __init__(self, hosted: HostedPartition) -> None:
        self.hosted = hosted
        """The replica. Once it was deleted and the partition came back, it is another object."""
        self.leads = False
        self.epoch = -2
        self.high_watermark = 0
        self.checked = 0
        self.transactions = ReplicaTransactions()


class Checker:
    """One per run."""

    def __init__(self, world: World, machines: "dict[int, Machine]") -> None:
        self.truths = Truths()
        self.copies = CopiesChecker(machines, self.truths.lives)
        self.metadata = MetadataChecker(world, self.truths, self.copies)
        self._controllers: dict[int, int] = {}
        self._forwarders: dict[bytes, int] = {}
        self._seen: dict[Process, dict[TopicIdPartition, _Seen]] = {}
        self._found_at_a_drop: Violation | None = None
        self.looks_at_transactions = False
        self.acknowledged = 0
        self.consumed = 0
        self.leaderships = 0

    # -- brokers ---------------------------------------------------------------------------------

    def after(self, machine: "Machine") -> None:
        """Something happened in a broker's process."""
        if self._found_at_a_drop is not None:
            raise self._found_at_a_drop
        process = machine.process
        if process is None:
            return
        controller = process.shared.active_controller.active
        if controller is not None:
            self._holds_office(machine.voter_id, int(controller.controller_epoch))
        seen = self._seen.get(process)
        if seen is None:
            seen = self._seen[process] = {}
        for hosted in process.hosted:
            if hosted.tip in machine.disk.mistaken:
                continue
            replica = hosted.replica
            known = seen.get(hosted.tip)
            if known is None or known.hosted is not hosted:
                known = seen[hosted.tip] = _Seen(hosted)
            leads = replica.role is ReplicaRole.LEADER
            if (
                replica.high_watermark != known.high_watermark
                or leads is not known.leads
                or replica.leader_epoch != known.epoch
            ):
                self._partition_moved(machine, hosted, known, leads=leads)
            if self.looks_at_transactions and not self._is_lossy(hosted):
                known.transactions.look(hosted, machine.voter_id)

    def compare_transactions(self, machine: "Machine") -> None:
        """Compare in full what the machine's replicas know of transactions, once nothing happens
        any more."""
        process = machine.process
        if process is None or not self.looks_at_transactions:
            return
        for hosted in process.hosted:
            known = self._seen[process].get(hosted.tip)
            if known is not None and not self._is_lossy(hosted):
                known.transactions.compare_in_full(hosted, machine.voter_id)

    def _is_lossy(self, hosted: HostedPartition) -> bool:
        return self.truths.of_replica(hosted).is_lossy

    def watch_drops(self, machine: "Machine", process: "Process") -> None:
        """Look at every replica of this process before it, or its beginning, is dropped (C8).

        Its leader may have committed something in the same step: it is not in the table after it,
        nor is its log, and producers hear of what was committed.
        """
        process.when_hosting.append(partial(self._watch_drops_of, machine, process))

    def _watch_drops_of(
        self, machine: "Machine", process: "Process", replicas: ReplicaManager
    ) -> None:
        table = replicas.table
        drop = table.drop

        def look_and_drop(hosted: HostedPartition) -> None:
            self._about_to_drop(machine, process, hosted)
            drop(hosted)

        table.drop = look_and_drop  # type: ignore[method-assign]
        retaining = replicas.retention
        start_at = retaining._start_at

        async def look_and_start_at(hosted: HostedPartition, offset: int) -> None:
            self._about_to_drop(machine, process, hosted, leads=hosted.leads)
            truth = self.truths.of_replica(hosted)
            truth.retained_from = max(truth.retained_from, offset)
            await start_at(hosted, offset)

        retaining._start_at = look_and_start_at  # type: ignore[method-assign]

    def _about_to_drop(
        self,
        machine: "Machine",
        process: "Process",
        hosted: HostedPartition,
        *,
        leads: bool = False,
    ) -> None:
        known = self._seen.get(process, {}).get(hosted.tip)
        if known is None or known.hosted is not hosted or not known.leads:
            return
        if hosted.replica.high_watermark == known.high_watermark:
            return
        try:
            self._partition_moved(machine, hosted, known, leads=leads)
        except Violation as found:
            self._found_at_a_drop = found  # The broker would handle it here.

    def _holds_office(self, broker_id: int, epoch: int) -> None:
        holder = self._controllers.setdefault(epoch, broker_id)
        if holder != broker_id:
            raise Violation(f"brokers {holder} and {broker_id} are both controller of {epoch}")

    @staticmethod
    def _drops_its_log(machine: "Machine", hosted: HostedPartition, *, leads: bool) -> bool:
        """A follower in no ISR whose log was damaged: ``CopiesChecker`` sees to the ISR."""
        is_empty = hosted.log.log_end_offset == hosted.log.log_start_offset
        return not leads and is_empty and hosted.tip in machine.damaged

    def _partition_moved(
        self, machine: "Machine", hosted: HostedPartition, known: _Seen, *, leads: bool
    ) -> None:
        replica = hosted.replica
        truth = self.truths.of_replica(hosted)
        epoch, high_watermark = replica.leader_epoch, replica.high_watermark
        who = f"broker {machine.voter_id} ({replica.role.name.lower()}, epoch {epoch})"
        went_back = high_watermark < known.high_watermark
        if went_back and self._drops_its_log(machine, hosted, leads=leads):
            machine.damaged.discard(hosted.tip)
        elif went_back and ((leads and known.leads and epoch == known.epoch) or not truth.is_lossy):
            raise Violation(
                f"{who}: high watermark of {hosted.tp} went back from {known.high_watermark} "
                f"to {high_watermark}"
            )
        self._is_of_one_life(hosted, who)
        if leads and (not known.leads or epoch != known.epoch):
            self._leads_now(machine, hosted, truth, who)
            known.checked = 0
        led_in = None
        if leads:
            led_in = int(epoch)
        elif known.leads and not truth.is_lossy:
            led_in = known.epoch
        known.leads, known.epoch, known.high_watermark = leads, epoch, high_watermark
        known.checked = min(known.checked, hosted.log.log_end_offset)
        if high_watermark > known.checked and self._counts(hosted, truth):
            self._check_committed(hosted, truth, known.checked, high_watermark, who, led_in)
            known.checked = high_watermark

    def _is_of_one_life(self, hosted: HostedPartition, who: str) -> None:
        """Check that a replica has no records that a removed partition left behind (C14)."""
        entries = hosted.log.leader_epochs.entries
        if hosted.replica.role is ReplicaRole.IDLE or not entries:
            return
        first_epoch = self.truths.lives.of(hosted.tip, hosted.replica.leader_epoch).first_epoch
        if entries[0][0] < first_epoch:
            raise Violation(
                f"{who} has records of {hosted.tp} from epoch {entries[0][0]} on; that was another "
                f"partition, this one began in epoch {first_epoch}"
            )

    def _counts(self, hosted: HostedPartition, truth: Truth) -> bool:
        """A follower's old high watermark means nothing after an unclean election."""
        if not truth.covers(hosted.replica.leader_epoch):
            return False
        if hosted.leads or not truth.is_lossy:
            return True
        state = fetch_state_of(hosted)
        return state is not None and state.is_fetching

    def _leads_now(
        self, machine: "Machine", hosted: HostedPartition, truth: Truth, who: str
    ) -> None:
        """Check that a new leader's log has everything that was committed up to its epoch."""
        self.leaderships += 1
        epoch = hosted.replica.leader_epoch
        if not truth.covers(epoch):
            return
        log, committed = hosted.log, truth.end_by(epoch)
        if truth.has_loss_to_forget:
            truth.forget_from(self._common_end(hosted, truth))
            return
        if truth.is_lossy:
            return
        if log.flushed_offset < committed:
            raise Violation(
                f"{who} leads {hosted.tp} with a durable log end of {log.flushed_offset}; "
                f"committed is [0, {committed})"
            )
        for batch in _read(hosted, log.log_start_offset, committed):
            truth.check(batch, who)

    def _common_end(self, hosted: HostedPartition, truth: Truth) -> int:
        end = hosted.log.log_start_offset
        for mine, batch in zip(
            _read(hosted, end, hosted.log.log_end_offset), truth.batches(end), strict=False
        ):
            if mine != batch:
                break
            end = min(truth.end, _end_of(mine))
        return end

    def _check_committed(
        self,
        hosted: HostedPartition,
        truth: Truth,
        begin: int,
        end: int,
        who: str,
        led_in: int | None,
    ) -> None:
        """``led_in``: the epoch that it leads now, or led when it was last looked at: it may have
        committed, and then seen that another leads, all in one step.
        """
        begin, before = max(begin, hosted.log.log_start_offset), truth.end
        for batch in _read(hosted, begin, end):
            if led_in is not None:
                truth.extend(batch, who, led_in)
            elif not truth.is_lossy:
                truth.check(batch, who)
        if truth.end > before and not truth.is_lossy:
            self.copies.committed(self.metadata.image, hosted, truth, who)

    # -- what is sent ----------------------------------------------------------------------------

    def called(self, sender: int, method: str, body: bytes) -> None:
        """Nothing is forwarded twice (F2)."""
        if not method.startswith("/quorate.v1.Admin/"):
            return
        found = REQUEST_ID.search(body)
        if found is not None and self._forwarders.setdefault(found[0], sender) != sender:
            raise Violation(f"{found[0].decode()} was forwarded by two brokers")

    def may_begin(self, tip: TopicIdPartition, epoch: int, log_start_offset: int) -> bool:
        """Whether its records may be gone up to there: committed ones, of a topic with a limit."""
        truth = self.truths.of(tip, epoch)
        topic = self.metadata.image.topic_by_id(tip.topic_id)
        configs = {} if topic is None else self.metadata.image.config("topic", topic.name)
        is_limited = topic is None or "retention.bytes" in configs
        return truth.is_lossy or (is_limited and log_start_offset <= truth.end)

    # -- clients ---------------------------------------------------------------------------------

    def acked(self, tip: TopicIdPartition, base_offset: int, value: bytes, epoch: int) -> None:
        """A producer was told that its record is committed."""
        self.acknowledged += 1
        truth = self.truths.of(tip, epoch)
        batch = truth.batch_at(base_offset)
        if truth.is_lossy or (batch is not None and value in batch):
            return
        raise Violation(
            f"{value!r} was acknowledged at offset {base_offset} of {truth.name} by the leader of "
            f"epoch {epoch}, and is not committed there"
        )

    def ended(self, tip: TopicIdPartition, epoch: int, marker: EndMarker) -> None:
        """A coordinator was told that its marker is committed."""
        truth = self.truths.of(tip, epoch)
        if not truth.is_lossy and not truth.transactions.has(marker):
            raise Violation(
                f"{marker} was acknowledged by the leader of {truth.name} in epoch {epoch}, and is "
                "not committed there"
            )

    def saw_committed(
        self,
        tip: TopicIdPartition,
        epoch: int,
        position: int,
        records: bytes,
        aborted: Collection[tuple[int, int, int]],
        who: str,
    ) -> int:
        """Check as ``saw`` does, for a consumer that reads what was committed."""
        next_position = self.saw(tip, epoch, position, records)
        truth = self.truths.of(tip, epoch)
        if not truth.is_lossy:
            told = [AbortedTransaction(*one) for one in aborted]
            truth.transactions.shown(records, told, who)
        return next_position

    def saw(self, tip: TopicIdPartition, epoch: int, position: int, records: bytes) -> int:
        """A consumer was given these; returns its next position."""
        truth = self.truths.of(tip, epoch)
        for header, data in iterate_batches(records, truth.name):
            if header.base_offset > position:
                raise Violation(f"a consumer of {truth.name} skipped from {position}")
            if not truth.is_lossy:
                truth.check(bytes(data), "a consumer")
            position = max(position, header.last_offset + 1)
            self.consumed += 1
        return position


def _read(hosted: HostedPartition, begin: int, end: int) -> list[bytes]:
    if begin >= end:
        return []
    read = hosted.log.read(begin, 1 << 30, end)
    return [bytes(data) for _, data in iterate_batches(b"".join(read.chunks), str(hosted.tp))]


def _end_of(batch: bytes) -> int:
    (found,) = iterate_batches(batch, "")
    return found.header.last_offset + 1


def read_all(hosted: HostedPartition) -> list[bytes]:
    """Every batch of a replica."""
    return _read(hosted, hosted.log.log_start_offset, hosted.log.log_end_offset)
