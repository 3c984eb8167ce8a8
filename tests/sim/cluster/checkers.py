"""The promises of DESIGN.md §9, looked at after every event.

The checker keeps a record of its own: of what was committed (``truth``), of who was controller in
which epoch, of every leadership. It looks into brokers, but only compares; it never helps them.
"""

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from broker.log.record_batch import iterate_batches
from broker.replication.following import Phase
from broker.replication.hosted import HostedPartition
from broker.replication.partition.effects import Role
from broker.topic_config import TOPIC_UNCLEAN_LEADER_ELECTION
from metadata_log.apply import Applied
from metadata_log.image import Image, Partition, Topic
from metadata_log.records import Transaction
from metadata_log.types import TopicIdPartition, TopicPartition
from tests.sim.cluster.lives import Life, Lives
from tests.sim.cluster.truth import Truth
from tests.sim.world import Violation, World

if TYPE_CHECKING:
    from tests.sim.cluster.machine import Machine
    from tests.sim.cluster.process import Process

REQUEST_ID: Final = re.compile(rb"request-\d{6}")


class _Seen:
    """What one process was last seen to make of one partition."""

    __slots__ = ("checked", "epoch", "high_watermark", "hosted", "leads")

    def __init__(self, hosted: HostedPartition) -> None:
        self.hosted = hosted
        """Another one where the replica was deleted and the partition came back."""
        self.leads = False
        self.epoch = -2
        self.high_watermark = 0
        self.checked = 0


class Checker:
    """One per run."""

    def __init__(self, world: World, machines: "dict[int, Machine]") -> None:
        self._world = world
        self._machines = machines
        self._image = Image()
        self._controllers: dict[int, int] = {}
        self._forwarders: dict[bytes, int] = {}
        self._truths: dict[Life, Truth] = {}
        self._lives = Lives()
        self._seen: dict[Process, dict[TopicIdPartition, _Seen]] = {}
        self._flushed_at_the_end: dict[int, dict[TopicIdPartition, int]] = defaultdict(dict)
        self.acknowledged = 0
        self.consumed = 0
        self.leaderships = 0

    def life(self, tip: TopicIdPartition, epoch: int) -> Life:
        """The partition of that id and number that had this leader epoch (C14)."""
        return self._lives.of(tip, epoch)

    def truth(self, tip: TopicIdPartition, epoch: int, name: str = "") -> Truth:
        """What was committed of the partition that had this leader epoch."""
        life = self.life(tip, epoch)
        found = self._truths.get(life)
        if found is None:
            found = self._truths[life] = Truth(tip, f"{name}/{tip.topic_id.hex()[:4]}")
        return found

    def truth_of(self, hosted: HostedPartition) -> Truth:
        """As ``truth``, for a replica."""
        return self.truth(hosted.tip, _epoch_of(hosted), str(hosted.tp))

    # -- metadata --------------------------------------------------------------------------------

    def applied(self, before: Image, applied: Applied, transaction: Transaction) -> None:
        """Offsets, epochs and versions only grow; leader and ISR change by the rules alone."""
        after = self._image = applied.image
        if after.controller_epoch < before.controller_epoch:
            raise Violation(f"controller epoch {after.controller_epoch} after a greater one")
        for name in applied.changes.topics:
            old, new = before.topics.get(name), after.topics.get(name)
            if old is None or new is None or old.topic_id != new.topic_id:
                continue
            self._count_changed(old, new)
            for number, (was, now) in enumerate(zip(old.partitions, new.partitions, strict=False)):
                if was is not now:
                    self._partition_changed(before, after, new, number, was, now)

    def _count_changed(self, old: Topic, new: Topic) -> None:
        """Removed partitions end; those that are added begin above them (C14)."""
        for number in range(len(new.partitions), len(old.partitions)):
            tip = TopicIdPartition(new.topic_id, number)
            floor = new.leader_epoch_floor
            if floor <= old.partitions[number].leader_epoch:
                raise Violation(f"{new.name}-{number} was removed above the floor of {floor}")
            self._lives.ended(tip, floor)
        for number in range(len(old.partitions), len(new.partitions)):
            tip = TopicIdPartition(new.topic_id, number)
            epoch = new.partitions[number].leader_epoch
            ended = max((one.tip == tip and one.first_epoch for one in self._truths), default=0)
            if self.life(tip, epoch).first_epoch < ended:
                raise Violation(f"{new.name}-{number} was added in an old leader epoch, {epoch}")

    def _partition_changed(
        self, before: Image, after: Image, topic: Topic, number: int, was: Partition, now: Partition
    ) -> None:
        where = f"{topic.name}-{number}"
        if now.leader_epoch < was.leader_epoch or now.version <= was.version:
            raise Violation(f"leaderAndISR of {where} went back: {was} to {now}")
        if now.leader != was.leader and now.leader_epoch == was.leader_epoch:
            raise Violation(f"two leaders of {where} in leader epoch {now.leader_epoch}")
        by_controller = now.leader_epoch > was.leader_epoch
        if by_controller and now.controller_epoch != before.controller_epoch:
            raise Violation(
                f"a controller of epoch {now.controller_epoch} decided on {where} "
                f"in epoch {before.controller_epoch}"
            )
        self._check_reassignment(before, after, topic, number, now)
        unclean = by_controller and not set(now.isr) <= set(was.isr)
        self._world.note(
            f"{where}: leader {now.leader} epoch {now.leader_epoch} isr {list(now.isr)}"
            f"{' UNCLEAN' if unclean else ''}"
        )
        if unclean:
            allowed = before.config("topic", topic.name).get(TOPIC_UNCLEAN_LEADER_ELECTION.key.name)
            if allowed != "true":
                raise Violation(f"{where}: {list(was.isr)} to {list(now.isr)} without consent")
            truth = self.truth(TopicIdPartition(topic.topic_id, number), now.leader_epoch, where)
            truth.lossy_from = now.leader_epoch

    def _check_reassignment(
        self, before: Image, after: Image, topic: Topic, number: int, now: Partition
    ) -> None:
        """The replicas a partition had go only once all it is to have are in sync (C11)."""
        tp = TopicPartition(topic.name, number)
        pending = before.reassignment(tp)
        if pending is None or after.reassignment(tp) is not None:
            return
        if set(now.replicas) == set(pending.original):
            return
        if now.replicas == pending.target and set(now.isr) != set(now.replicas):
            raise Violation(
                f"{topic.name}-{number} was moved to {list(now.replicas)} with an ISR of "
                f"{list(now.isr)}"
            )

    # -- brokers ---------------------------------------------------------------------------------

    def after(self, machine: "Machine") -> None:
        """Something happened in a broker's process."""
        process = machine.process
        if process is None:
            return
        node = process.node
        elector = node._elector
        if elector is not None and elector.active is not None:
            self._holds_office(machine.voter_id, int(elector.active.controller_epoch))
        seen = self._seen.get(process)
        if seen is None:
            seen = self._seen[process] = {}
        for hosted in node._replicas.table:
            replica = hosted.replica
            known = seen.get(hosted.tip)
            if known is None or known.hosted is not hosted:
                known = seen[hosted.tip] = _Seen(hosted)
            leads = replica.role is Role.LEADER
            if (
                replica.high_watermark != known.high_watermark
                or leads is not known.leads
                or replica.leader_epoch != known.epoch
            ):
                self._partition_moved(machine, hosted, known, leads=leads)

    def _holds_office(self, broker_id: int, epoch: int) -> None:
        holder = self._controllers.setdefault(epoch, broker_id)
        if holder != broker_id:
            raise Violation(f"brokers {holder} and {broker_id} are both controller of {epoch}")

    def _partition_moved(
        self, machine: "Machine", hosted: HostedPartition, known: _Seen, *, leads: bool
    ) -> None:
        replica = hosted.replica
        truth = self.truth_of(hosted)
        epoch, high_watermark = replica.leader_epoch, replica.high_watermark
        who = f"broker {machine.voter_id} ({replica.role.name.lower()}, epoch {epoch})"
        went_back = high_watermark < known.high_watermark
        if went_back and ((leads and known.leads and epoch == known.epoch) or not truth.is_lossy):
            raise Violation(
                f"{who}: high watermark of {hosted.tp} went back from {known.high_watermark} "
                f"to {high_watermark}"
            )
        self._is_of_one_life(hosted, who)
        if leads and (not known.leads or epoch != known.epoch):
            self._leads_now(machine, hosted, truth, who)
            known.checked = 0
        known.leads, known.epoch, known.high_watermark = leads, epoch, high_watermark
        known.checked = min(known.checked, hosted.log.log_end_offset)
        if high_watermark > known.checked and self._counts(hosted, truth):
            self._check_committed(hosted, truth, known.checked, high_watermark, who)
            known.checked = high_watermark

    def _is_of_one_life(self, hosted: HostedPartition, who: str) -> None:
        """Nobody takes up a partition with what a removed one left behind (C14)."""
        entries = hosted.log.leader_epochs.entries
        if hosted.replica.role is Role.IDLE or not entries:
            return
        first_epoch = self.life(hosted.tip, hosted.replica.leader_epoch).first_epoch
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
        following = hosted.following
        return following is not None and following.phase is Phase.FETCHING

    def _leads_now(
        self, machine: "Machine", hosted: HostedPartition, truth: Truth, who: str
    ) -> None:
        """Everything that was ever committed is in the log of a new leader."""
        self.leaderships += 1
        epoch = hosted.replica.leader_epoch
        if not truth.covers(epoch):
            return
        log = hosted.log
        if truth.lossy_from == epoch:
            truth.forget_from(self._common_end(hosted, truth))
            return
        if truth.is_lossy:
            return
        if log.flushed_offset < truth.end:
            raise Violation(
                f"{who} leads {hosted.tp} with a durable log end of {log.flushed_offset}; "
                f"committed is [0, {truth.end})"
            )
        for batch in _read(hosted, log.log_start_offset, truth.end):
            truth.check(batch, who)

    def _common_end(self, hosted: HostedPartition, truth: Truth) -> int:
        end = hosted.log.log_start_offset
        for mine, batch in zip(
            _read(hosted, end, hosted.log.log_end_offset), truth.batches(), strict=False
        ):
            if mine != batch:
                break
            end = min(truth.end, _end_of(mine))
        return end

    def _check_committed(
        self, hosted: HostedPartition, truth: Truth, begin: int, end: int, who: str
    ) -> None:
        begin, before = max(begin, hosted.log.log_start_offset), truth.end
        for batch in _read(hosted, begin, end):
            if hosted.leads:
                truth.extend(batch, who)
            elif not truth.is_lossy:
                truth.check(batch, who)
        if truth.end > before and not truth.is_lossy:
            self._isr_has_it(hosted, truth, who)

    def _isr_has_it(self, hosted: HostedPartition, truth: Truth, who: str) -> None:
        """What is committed is durable on every member of the true ISR, and on enough of them."""
        image = self._image
        topic = image.topic_by_id(hosted.tip.topic_id)
        if topic is None or hosted.tip.partition >= image.kept(topic):
            return
        partition = topic.partitions[hosted.tip.partition]
        mine = self.life(hosted.tip, hosted.replica.leader_epoch)
        if mine != self.life(hosted.tip, partition.leader_epoch):
            return
        copies = 0
        for member, machine in self._machines.items():
            process = machine.process
            other = None if process is None else process.node._replicas.table.get(hosted.tip)
            if process is None or other is None or process.store is None:
                copies += self._flushed_at_the_end[member].get(hosted.tip, 0) >= truth.end
                continue
            if process.store.log_may_be_lost:
                copies += 1  # It may have had it when the leader counted it (rule 8).
                continue
            flushed = other.log.flushed_offset
            copies += flushed >= truth.end
            if member in partition.isr:
                self._check_member(hosted, truth, who, member, flushed)
        if copies < hosted.replica.effective_min_insync_replicas:
            raise Violation(
                f"{who} committed {hosted.tp} up to {truth.end} with {copies} copies; "
                f"min.insync.replicas is {hosted.replica.min_insync_replicas}"
            )

    def _check_member(
        self, hosted: HostedPartition, truth: Truth, who: str, member: int, flushed: int
    ) -> None:
        if flushed < truth.end:
            raise Violation(
                f"{who} committed {hosted.tp} up to {truth.end}; broker {member} is in the ISR "
                f"and durable up to {flushed} only"
            )

    def goes_down(self, machine: "Machine") -> None:
        """What its disk has is remembered until it is up again."""
        process = machine.process
        if process is not None:
            self._flushed_at_the_end[machine.voter_id].update(
                (hosted.tip, hosted.log.flushed_offset) for hosted in process.node._replicas.table
            )

    # -- what is sent ----------------------------------------------------------------------------

    def called(self, sender: int, method: str, body: bytes) -> None:
        """Nothing is forwarded twice (F2)."""
        if not method.startswith("/quorate.v1.Admin/"):
            return
        found = REQUEST_ID.search(body)
        if found is not None and self._forwarders.setdefault(found[0], sender) != sender:
            raise Violation(f"{found[0].decode()} was forwarded by two brokers")

    # -- clients ---------------------------------------------------------------------------------

    def acked(self, tip: TopicIdPartition, base_offset: int, value: bytes, epoch: int) -> None:
        """A producer was told that its record is committed."""
        self.acknowledged += 1
        truth = self.truth(tip, epoch)
        batch = truth.batch_at(base_offset)
        if truth.is_lossy or (batch is not None and value in batch):
            return
        raise Violation(
            f"{value!r} was acknowledged at offset {base_offset} of {truth.name} by the leader of "
            f"epoch {epoch}, and is not committed there"
        )

    def saw(self, tip: TopicIdPartition, epoch: int, position: int, records: bytes) -> int:
        """A consumer was given these; returns its next position."""
        truth = self.truth(tip, epoch)
        for header, data in iterate_batches(records, truth.name):
            if header.base_offset > position:
                raise Violation(f"a consumer of {truth.name} skipped from {position}")
            if not truth.is_lossy:
                truth.check(bytes(data), "a consumer")
            position = max(position, header.last_offset + 1)
            self.consumed += 1
        return position


def _epoch_of(hosted: HostedPartition) -> int:
    """The leader epoch that a replica is in, or was in when its process ended."""
    if hosted.replica.leader_epoch >= 0:
        return hosted.replica.leader_epoch
    entries = hosted.log.leader_epochs.entries
    return int(entries[-1][0]) if entries else 0


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
