"""Decides which partitions change when brokers fail, return or leave (C2, B3, rule 8).

When a broker's new incarnation has been processed (its leaderships moved or given a new epoch, its
ISR memberships removed where its log may be lost), the controller *admits* its broker epoch, in the
metadata log. A restart is therefore noticed even if the broker returned between two checks, and
even if those were the checks of two different controllers (B3).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Set

from quorate.broker.controller.managers import partition_change
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.partition_change import (
    NOBODY,
    NONE_OFFLINE,
    Brokers,
    LeadershipChange,
    LiveBrokers,
    OfflineReplicas,
)
from quorate.common.types import BrokerId, TopicId, TopicIdPartition
from quorate.metadata_log.image import Broker, Image
from quorate.metadata_log.partitions import Topic
from quorate.metadata_log.records import BrokerAdmitted, Operation, PartitionChange
from quorate_proto.v1 import control_pb2, errors_pb2

UncleanAllowed = Callable[[str], bool]
"""Returns whether the topic of that name allows unclean leader election."""


def liveness(image: Image) -> LiveBrokers:
    """Return the live brokers of ``image``, grouped by the state of their incarnation."""
    arrived = [broker for broker in image.brokers.values() if not broker.admitted]
    lost = frozenset(b.broker_id for b in arrived if b.registration.log_may_be_lost)
    restarted = frozenset(b.broker_id for b in arrived) - lost
    return LiveBrokers(frozenset(image.brokers) - restarted - lost, restarted, lost)


def leadership_changes(
    image: Image,
    tenure: ControllerTenure,
    brokers: LiveBrokers,
    *,
    unclean: UncleanAllowed,
    settled: Set[TopicIdPartition] = frozenset(),
    offline: OfflineReplicas = NONE_OFFLINE,
    only: Collection[TopicIdPartition] | None = None,
) -> list[Operation]:
    """Return an operation for every partition whose leader is gone or whose ISR shrinks or returns.

    ``settled`` are the partitions that were decided since the newest arrival. A restarted broker
    leads them in a new epoch, or a broker that may have lost its log is in their ISR with the
    topic's consent. Deciding again from an image in which the operations are applied returns none.
    With ``only`` these partitions are looked at and no others, as after a report that their
    replicas are ``offline``.
    """
    settled_brokers = LiveBrokers(brokers.live)
    lost_by = _lost_replicas(image)
    operations = []
    touched = _touched(image, brokers.steady) if only is None else _kept(image, only)
    for topic, number in touched:
        partition = topic.partitions[number]
        tip = TopicIdPartition(topic.topic_id, number)
        is_settled = bool(settled) and tip in settled
        here = brokers.without_log(lost_by[tip]) if tip in lost_by else brokers
        here, known = (
            one.with_offline(offline.get(tip, NOBODY)) for one in (here, settled_brokers)
        )
        decision = partition_change.after_broker_change(
            partition, known if is_settled else here, unclean=False
        )
        if _is_offline(decision, partition.offline) and unclean(topic.name):
            decision = partition_change.after_broker_change(partition, here, unclean=True)
        if decision is not None:
            operations.append(_operation(tenure, topic, number, decision))
    return operations


def _lost_replicas(image: Image) -> dict[TopicIdPartition, Brokers]:
    """Return the brokers in a new incarnation that have lost a partition, by partition (rule 8)."""
    lost_by: dict[TopicIdPartition, Brokers] = {}
    for broker_id, broker in image.brokers.items():
        for one in () if broker.admitted else broker.lost:
            tip = TopicIdPartition(one.topic_id, one.partition)
            lost_by[tip] = lost_by.get(tip, frozenset()) | {broker_id}
    return lost_by


def _is_offline(decision: LeadershipChange | None, is_offline: bool) -> bool:
    return is_offline if decision is None else decision.leader < 0


def changed_partition(operation: Operation) -> TopicIdPartition:
    """Return the partition that an operation of this module changes."""
    (record,) = operation.records
    assert isinstance(record, PartitionChange)
    return TopicIdPartition(record.topic_id, record.partition)


def admissions(image: Image, tenure: ControllerTenure) -> list[Operation]:
    """Return operations that admit the brokers that have joined and been processed.

    It does no harm if one of them has left meanwhile.
    """
    return [
        tenure.operation(BrokerAdmitted(broker_id=broker_id, broker_epoch=broker.epoch))
        for broker_id, broker in sorted(image.brokers.items())
        if not broker.admitted
    ]


def shutdown_changes(
    image: Image,
    tenure: ControllerTenure,
    leaving: BrokerId,
    candidates: Brokers,
    *,
    offline: OfflineReplicas = NONE_OFFLINE,
) -> list[Operation]:
    """Return operations that move the leaderships away from a broker that wants to stop, and take
    it out of the ISRs in which it follows (scenario 11).

    Else the partitions that it follows would wait for it from the moment when it stops fetching
    until its session ends.
    """
    return _leaving_isrs(tenure, _in_isr(image, leaving), leaving, candidates, offline)


def reported_replicas(
    image: Image, request: control_pb2.ReportReplicasRequest
) -> list[tuple[Topic, int]]:
    """Return the partitions in a report whose ISR contains the sender."""
    broker_id = BrokerId(request.broker_id)
    if request.is_full:
        return list(_in_isr(image, broker_id))
    return [
        (topic, number)
        for topic, number in _damaged(image, request)
        if broker_id in topic.partitions[number].isr
    ]


def _in_isr(image: Image, broker_id: BrokerId) -> Iterator[tuple[Topic, int]]:
    """Yield the partitions whose ISR contains a broker."""
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions[: image.kept(topic)]):
            if broker_id in partition.isr:
                yield topic, number


def _leaving_isrs(
    tenure: ControllerTenure,
    partitions: Iterable[tuple[Topic, int]],
    leaving: BrokerId,
    candidates: Brokers,
    offline: OfflineReplicas,
) -> list[Operation]:
    """Return operations that take a broker out of the ISRs of partitions that have others.

    An ``offline`` replica does not count as another: it cannot lead.
    """
    operations = []
    for topic, number in partitions:
        able = _able(candidates, offline, topic, number)
        decision = partition_change.without(topic.partitions[number], leaving, able)
        if decision is not None:
            operations.append(_operation(tenure, topic, number, decision))
    return operations


def _able(candidates: Brokers, offline: OfflineReplicas, topic: Topic, number: int) -> Brokers:
    """Return those of ``candidates`` that could lead a partition as far as it is known."""
    if not offline:
        return candidates
    tip = TopicIdPartition(topic.topic_id, number)
    return partition_change.without_offline(candidates, offline, tip)


def _damaged(
    image: Image, request: control_pb2.ReportReplicasRequest
) -> Iterator[tuple[Topic, int]]:
    """Return the partitions that are assigned to the sender of a report and damaged there."""
    named = (TopicIdPartition(TopicId(one.topic_id), one.partition) for one in request.damaged)
    for topic, number in _kept(image, named):
        if request.broker_id in topic.partitions[number].replicas:
            yield topic, number


def reported_offline(request: control_pb2.ReportReplicasRequest) -> frozenset[TopicIdPartition]:
    """Return the replicas of the sender of a report that are in offline log directories."""
    return frozenset(
        TopicIdPartition(TopicId(one.topic_id), one.partition) for one in request.offline
    )


def report_changes(
    image: Image,
    tenure: ControllerTenure,
    request: control_pb2.ReportReplicasRequest,
    candidates: Brokers,
    *,
    settled: Set[TopicIdPartition] = frozenset(),
    offline: OfflineReplicas = NONE_OFFLINE,
) -> list[Operation]:
    """Return operations that remove the reported replicas from ISRs that have other members.

    A damaged replica gets a leader epoch in which it is not in the ISR, even if it was not in it
    before. In that epoch it drops its log, and no earlier report of its log can return it to the
    ISR. ``settled`` are the partitions that got such an epoch by this report. A replica that is
    offline has no log to drop: ``leadership_changes`` deals with it.
    """
    broker_id = BrokerId(request.broker_id)
    reported = reported_replicas(image, request)
    operations = _leaving_isrs(tenure, reported, broker_id, candidates, offline)
    passed_over = settled | reported_offline(request)
    for topic, number in _damaged(image, request):
        partition = topic.partitions[number]
        done = TopicIdPartition(topic.topic_id, number) in passed_over
        if broker_id not in partition.isr and not partition.offline and not done:
            same = partition_change.LeadershipChange(partition.leader, partition.isr)
            operations.append(_operation(tenure, topic, number, same))
    return operations


def failed_elections(
    image: Image,
    tenure: ControllerTenure,
    broker: Broker,
    tips: Iterable[TopicIdPartition],
    candidates: Brokers,
    *,
    offline: OfflineReplicas = NONE_OFFLINE,
) -> list[Operation]:
    """Return operations that elect another leader where ``broker`` was elected and cannot lead
    (C21).

    It leaves the ISR, so it is not elected again. It stays where it is the last one that could
    lead: an operator has to look at it.
    """
    live = image.brokers.get(broker.broker_id)
    if live is None or live.epoch != broker.epoch:
        return []  # Its next incarnation is told anew.
    led = (
        (topic, number)
        for topic, number in _kept(image, tips)
        if topic.partitions[number].leader == broker.broker_id
    )
    return _leaving_isrs(tenure, led, broker.broker_id, candidates, offline)


def relying_on(
    image: Image, broker_id: BrokerId, tips: Iterable[TopicIdPartition]
) -> list[TopicIdPartition]:
    """Return those of ``tips`` that have a leader, and this broker in their ISR.

    They alone change when its replicas are offline. A report names all of them every few seconds,
    and most are out of the ISR or without a leader since the first one.
    """
    return [
        TopicIdPartition(topic.topic_id, number)
        for topic, number in _kept(image, tips)
        if not topic.partitions[number].offline and broker_id in topic.partitions[number].isr
    ]


def leaderless(image: Image) -> dict[BrokerId, list[TopicIdPartition]]:
    """Return the partitions that nobody leads although a broker of their ISR could, by broker.

    An ISR member that is live and admitted leads where nobody else does. Only a controller that
    knows its replica to be offline leaves the partition without a leader.
    """
    steady = liveness(image).steady
    found: dict[BrokerId, list[TopicIdPartition]] = {}
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions[: image.kept(topic)]):
            for broker_id in partition.isr if partition.offline else ():
                if broker_id in steady:
                    tip = TopicIdPartition(topic.topic_id, number)
                    found.setdefault(broker_id, []).append(tip)
    return found


def remaining_leaderships(
    image: Image,
    leaving: BrokerId,
    staying: Brokers,
    *,
    offline: OfflineReplicas = NONE_OFFLINE,
) -> int:
    """Return the number of partitions led by ``leaving`` that a staying broker could take over."""
    others = staying - {leaving}
    return sum(
        not _able(others, offline, topic, number).isdisjoint(topic.partitions[number].replicas)
        for topic, number in led_by(image, leaving)
    )


def checked_sender(
    image: Image,
    request: control_pb2.ControlledShutdownRequest | control_pb2.ReportReplicasRequest,
) -> int:
    """Return the error code of a broker's request about itself; refuse an old incarnation (B3)."""
    broker = image.brokers.get(BrokerId(request.broker_id))
    if broker is None or broker.epoch != request.broker_epoch:
        return errors_pb2.STALE_BROKER_EPOCH
    return errors_pb2.NONE


def led_by(image: Image, broker_id: BrokerId) -> Iterator[tuple[Topic, int]]:
    """Yield the partitions led by a broker, except those that are being deleted or removed."""
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions[: image.kept(topic)]):
            if partition.leader == broker_id:
                yield topic, number


def _kept(image: Image, tips: Iterable[TopicIdPartition]) -> Iterator[tuple[Topic, int]]:
    """Yield those of ``tips`` that exist and are not being deleted or removed."""
    for tip in tips:
        topic = image.topic_by_id(tip.topic_id)
        if topic is not None and 0 <= tip.partition < image.kept(topic):
            yield topic, tip.partition


def _touched(image: Image, steady: Brokers) -> Iterator[tuple[Topic, int]]:
    """Yield the partitions that do not have a steady leader with a steady ISR.

    Distinct ISRs are few and shared, so most partitions cost one dictionary lookup.
    """
    whole: dict[tuple[BrokerId, ...], bool] = {}
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions[: image.kept(topic)]):
            is_whole = whole.get(partition.isr)
            if is_whole is None:
                is_whole = whole[partition.isr] = steady.issuperset(partition.isr)
            if not is_whole or partition.leader not in steady:
                yield topic, number


def _operation(
    tenure: ControllerTenure, topic: Topic, number: int, decision: LeadershipChange
) -> Operation:
    before = topic.partitions[number]
    return partition_change.operation(tenure, topic.name, topic.topic_id, number, before, decision)
