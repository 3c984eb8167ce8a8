"""Checks what the metadata log says next: epochs and versions only grow, by the rules alone."""

from quorate.broker.config.topic_keys import TOPIC_UNCLEAN_LEADER_ELECTION
from quorate.common.types import (
    NO_BROKER,
    BrokerId,
    LeaderEpoch,
    TopicIdPartition,
    TopicPartition,
)
from quorate.metadata_log.apply import Applied
from quorate.metadata_log.image import Image
from quorate.metadata_log.partitions import Partition, Topic
from quorate.metadata_log.records import Transaction
from tests.sim.cluster.copies import CopiesChecker
from tests.sim.cluster.lives import Truths
from tests.sim.world import Violation, World


class MetadataChecker:
    """Looks at every applied transaction."""

    def __init__(self, world: World, truths: Truths, copies: CopiesChecker) -> None:
        self.image = Image()
        self._world = world
        self._truths = truths
        self._copies = copies
        self._led_since: dict[TopicIdPartition, tuple[BrokerId, LeaderEpoch]] = {}
        """The last leader, and the first leader epoch since which no other broker has led."""

    def has_led_since(self, tip: TopicIdPartition, leader: int, epoch: int) -> bool:
        """Whether that broker has led since then, and no other."""
        topic = self.image.topic_by_id(tip.topic_id)
        if topic is None or tip.partition >= len(topic.partitions):
            return False
        first = topic.partitions[tip.partition].leader, LeaderEpoch(0)
        led_by, since = self._led_since.get(tip, first)
        return led_by == leader and since <= epoch

    def applied(self, before: Image, applied: Applied, transaction: Transaction) -> None:
        """Offsets, epochs and versions only grow; leader and ISR change by the rules alone."""
        after = self.image = applied.image
        if after.controller_epoch < before.controller_epoch:
            raise Violation(f"controller epoch {after.controller_epoch} after a greater one")
        for name in applied.changes.topics:
            old, new = before.topics.get(name), after.topics.get(name)
            if new is not None and (old is None or old.topic_id != new.topic_id):
                self._decided_in_office(name, before, new.partitions[0])
            if old is None or new is None or old.topic_id != new.topic_id:
                continue
            self._count_changed(old, new)
            for number, (was, now) in enumerate(zip(old.partitions, new.partitions, strict=False)):
                if was is not now:
                    self._partition_changed(before, after, new, number, was, now)
        for broker_id in applied.changes.brokers:
            if _may_lead_from_now_on(before, after, broker_id):
                self._check_leads_by_consent(after, broker_id)

    def _count_changed(self, old: Topic, new: Topic) -> None:
        """Removed partitions end; those that are added begin above them (C14)."""
        for number in range(len(new.partitions), len(old.partitions)):
            tip = TopicIdPartition(new.topic_id, number)
            floor = new.leader_epoch_floor
            if floor <= old.partitions[number].leader_epoch:
                raise Violation(f"{new.name}-{number} was removed above the floor of {floor}")
            self._truths.lives.ended(tip, floor)
        for number in range(len(old.partitions), len(new.partitions)):
            tip = TopicIdPartition(new.topic_id, number)
            epoch = new.partitions[number].leader_epoch
            ended = self._truths.newest_life(tip)
            if self._truths.lives.of(tip, epoch).first_epoch < ended:
                raise Violation(f"{new.name}-{number} was added in an old leader epoch, {epoch}")

    def _partition_changed(
        self, before: Image, after: Image, topic: Topic, number: int, was: Partition, now: Partition
    ) -> None:
        where = f"{topic.name}-{number}"
        if now.leader_epoch < was.leader_epoch or now.version <= was.version:
            raise Violation(f"leaderAndISR of {where} went back: {was} to {now}")
        if now.leader != was.leader and now.leader_epoch == was.leader_epoch:
            raise Violation(f"two leaders of {where} in leader epoch {now.leader_epoch}")
        self._note_leader(TopicIdPartition(topic.topic_id, number), was, now)
        by_controller = now.leader_epoch > was.leader_epoch
        if by_controller:
            self._decided_in_office(where, before, now)
        self._check_reassignment(before, after, topic, number, was, now)
        unclean = by_controller and (
            not set(now.isr) <= set(was.isr)
            or _accepts_a_loss(before, TopicIdPartition(topic.topic_id, number), was, now)
        )
        self._world.note(
            f"{where}: leader {now.leader} epoch {now.leader_epoch} isr {list(now.isr)}"
            f"{' UNCLEAN' if unclean else ''}"
        )
        if unclean:
            self._loss_accepted(before, topic, number, was, now)
        if not by_controller:
            tip = TopicIdPartition(topic.topic_id, number)
            truth = self._truths.of(tip, now.leader_epoch, where)
            joined = [member for member in now.isr if member not in was.isr]
            self._copies.joined(after, truth, joined, f"{where} (epoch {now.leader_epoch})")

    def _note_leader(self, tip: TopicIdPartition, was: Partition, now: Partition) -> None:
        led_by = self._led_since.get(tip, (was.leader, LeaderEpoch(0)))[0]
        if now.leader not in (NO_BROKER, led_by):
            self._led_since[tip] = now.leader, now.leader_epoch
        else:
            self._led_since.setdefault(tip, (was.leader, LeaderEpoch(0)))

    def _loss_accepted(
        self, before: Image, topic: Topic, number: int, was: Partition, now: Partition
    ) -> None:
        """Check that a loss is accepted only with the operator's consent, or not in earnest.

        A broker that is not admitted yet may be named by a decision that came late, of before its
        bounce: it leads nothing until it is admitted, and by then by consent.
        """
        allowed = before.config("topic", topic.name).get(TOPIC_UNCLEAN_LEADER_ELECTION.key.name)
        where = f"{topic.name}-{number}"
        if allowed == "true":
            tip = TopicIdPartition(topic.topic_id, number)
            truth = self._truths.of(tip, now.leader_epoch, where)
            truth.lossy_from = now.leader_epoch
        elif not set(now.isr) <= set(was.isr) or before.brokers[now.leader].admitted:
            raise Violation(f"{where}: {list(was.isr)} to {list(now.isr)} without consent")

    def _check_leads_by_consent(self, image: Image, broker_id: BrokerId) -> None:
        """Check that a broker that may have lost its log, once admitted, leads only what it was
        given by consent (rule 8)."""
        for topic in image.topics.values():
            for number, leaf in enumerate(topic.partitions[: image.kept(topic)]):
                where = f"{topic.name}-{number}"
                tip = TopicIdPartition(topic.topic_id, number)
                truth = self._truths.of(tip, leaf.leader_epoch, where)
                if leaf.leader == broker_id and truth.lossy_from != leaf.leader_epoch:
                    raise Violation(
                        f"{where}: broker {broker_id}, whose log may be lost, is admitted as its "
                        f"leader in epoch {leaf.leader_epoch} without consent"
                    )

    def _decided_in_office(self, where: str, before: Image, now: Partition) -> None:
        """A deposed controller changes nothing (E3)."""
        if before.controller is None or now.controller_epoch != before.controller_epoch:
            raise Violation(
                f"a controller of epoch {now.controller_epoch} decided on {where} in epoch "
                f"{before.controller_epoch}, when broker {before.controller_id} was the controller"
            )

    def _check_reassignment(
        self, before: Image, after: Image, topic: Topic, number: int, was: Partition, now: Partition
    ) -> None:
        """The replicas a partition had go only once all it is to have are in sync (C11)."""
        tp = TopicPartition(topic.name, number)
        pending = before.reassignment(tp)
        if after.reassignment(tp) is not None or set(now.replicas) >= set(was.replicas):
            return
        is_cancelled = pending is not None and set(now.replicas) == set(pending.original)
        if not is_cancelled and set(now.isr) != set(now.replicas):
            raise Violation(
                f"{topic.name}-{number} was moved to {list(now.replicas)} with an ISR of "
                f"{list(now.isr)}"
            )


def _accepts_a_loss(before: Image, tip: TopicIdPartition, was: Partition, now: Partition) -> bool:
    """Whether it is led again by its only ISR member, whose disk was replaced or lost (rule 8).

    With others in the ISR it is no choice but a decision that came late: of before the bounce. The
    broker leads nothing until it is admitted, and the controller decides anew before that.
    """
    broker = before.brokers.get(now.leader)
    if broker is None or now.isr != (now.leader,):
        return False
    is_lost = any((one.topic_id, one.partition) == tip for one in broker.lost)
    if not is_lost and not broker.registration.log_may_be_lost:
        return False
    return was.leader == NO_BROKER or not broker.admitted


def _may_lead_from_now_on(before: Image, after: Image, broker_id: BrokerId) -> bool:
    """Whether a controller has dealt with the arrival of a broker that may have lost its log."""
    was, now = before.brokers.get(broker_id), after.brokers.get(broker_id)
    if now is None or not now.admitted or not now.registration.log_may_be_lost:
        return False
    return was is None or was.epoch != now.epoch or not was.admitted
