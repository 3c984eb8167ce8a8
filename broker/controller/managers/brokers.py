"""Broker failures, returns and departures: which partitions change by them (C2, B3, rule 8).

When a broker's new incarnation has been dealt with (its leaderships moved or given a new epoch, its
ISR memberships dropped where its log may be lost), the controller *admits* its broker epoch, in
the metadata log. So a bounce is noticed even if it came back between two looks, and even if those
were the looks of two different controllers (B3).
"""

from collections.abc import Callable, Iterator, Set

from broker.controller.managers import partition_change
from broker.controller.managers.office import Office
from broker.controller.managers.partition_change import Brokers, Leadership, Liveness
from metadata_log.image import Image, Topic
from metadata_log.records import BrokerAdmitted, Operation, PartitionChange
from metadata_log.types import BrokerId, TopicId, TopicIdPartition
from quorate_proto.v1 import control_pb2, errors_pb2

UncleanAllowed = Callable[[str], bool]
"""Whether a topic of that name allows unclean leader election."""


def liveness(image: Image) -> Liveness:
    """The live brokers of ``image``."""
    arrived = [broker for broker in image.brokers.values() if not broker.admitted]
    lost = frozenset(b.broker_id for b in arrived if b.registration.log_may_be_lost)
    restarted = frozenset(b.broker_id for b in arrived) - lost
    return Liveness(frozenset(image.brokers) - restarted - lost, restarted, lost)


def leadership_changes(
    image: Image,
    office: Office,
    brokers: Liveness,
    *,
    unclean: UncleanAllowed,
    settled: Set[TopicIdPartition] = frozenset(),
) -> list[Operation]:
    """Operations for every partition whose leader is gone or whose ISR shrinks or returns.

    ``settled``: partitions decided upon since the newest arrival. A restarted broker leads
    them in an epoch of its own, one that may have lost its log is in their ISR by consent alone.
    Deciding again from the image in which the operations are applied gives none.
    """
    settled_brokers = Liveness(brokers.live)
    operations = []
    for topic, number in _touched(image, brokers.steady):
        partition = topic.partitions[number]
        is_settled = bool(settled) and TopicIdPartition(topic.topic_id, number) in settled
        decision = partition_change.after_broker_change(
            partition, settled_brokers if is_settled else brokers, unclean=False
        )
        if _is_offline(decision, partition.offline) and unclean(topic.name):
            decision = partition_change.after_broker_change(partition, brokers, unclean=True)
        if decision is not None:
            operations.append(_operation(office, topic, number, decision))
    return operations


def _is_offline(decision: Leadership | None, is_offline: bool) -> bool:
    return is_offline if decision is None else decision.leader < 0


def changed_partition(operation: Operation) -> TopicIdPartition:
    """The partition that an operation of this module changes."""
    (record,) = operation.records
    assert isinstance(record, PartitionChange)
    return TopicIdPartition(record.topic_id, record.partition)


def admissions(image: Image, office: Office) -> list[Operation]:
    """Admits those who have arrived and been dealt with; who left meanwhile is no matter."""
    return [
        office.operation(BrokerAdmitted(broker_id=broker_id, broker_epoch=broker.epoch))
        for broker_id, broker in sorted(image.brokers.items())
        if not broker.admitted
    ]


def shutdown_changes(
    image: Image, office: Office, leaving: BrokerId, candidates: Brokers
) -> list[Operation]:
    """Moves the leaderships of a broker that wants to stop (scenario 11)."""
    return [
        _operation(office, topic, number, decision)
        for topic, number in led_by(image, leaving)
        if (decision := partition_change.away_from(topic.partitions[number], leaving, candidates))
        is not None
    ]


def reported_replicas(
    image: Image, request: control_pb2.ReportReplicasRequest
) -> list[tuple[Topic, int]]:
    """The partitions that a report is about, as far as its sender is in their ISR."""
    broker_id = BrokerId(request.broker_id)
    if request.is_full:
        return [
            (topic, number)
            for topic in image.topics.values()
            for number, partition in enumerate(topic.partitions[: image.kept(topic)])
            if broker_id in partition.isr
        ]
    return [
        (topic, number)
        for topic, number in _damaged(image, request)
        if broker_id in topic.partitions[number].isr
    ]


def _damaged(
    image: Image, request: control_pb2.ReportReplicasRequest
) -> Iterator[tuple[Topic, int]]:
    """Partitions with a damaged replica on the sender, which is theirs to hold."""
    for one in request.damaged:
        topic = image.topic_by_id(TopicId(one.topic_id))
        if topic is None or one.partition >= image.kept(topic):
            continue
        if request.broker_id in topic.partitions[one.partition].replicas:
            yield topic, one.partition


def report_changes(
    image: Image,
    office: Office,
    request: control_pb2.ReportReplicasRequest,
    candidates: Brokers,
    *,
    settled: Set[TopicIdPartition] = frozenset(),
) -> list[Operation]:
    """Takes the reported replicas out of ISRs that have others left.

    A damaged one gets a leader epoch in which it is out of the ISR, also where it was before: in
    that epoch it drops its log, and nothing that it said before can let it in again. ``settled``:
    has got it by this very report.
    """
    broker_id = BrokerId(request.broker_id)
    operations = [
        _operation(office, topic, number, decision)
        for topic, number in reported_replicas(image, request)
        if (decision := partition_change.without(topic.partitions[number], broker_id, candidates))
        is not None
    ]
    for topic, number in _damaged(image, request):
        partition = topic.partitions[number]
        done = TopicIdPartition(topic.topic_id, number) in settled
        if broker_id not in partition.isr and not partition.offline and not done:
            same = partition_change.Leadership(partition.leader, partition.isr)
            operations.append(_operation(office, topic, number, same))
    return operations


def remaining_leaderships(image: Image, leaving: BrokerId, staying: Brokers) -> int:
    """Partitions led by ``leaving`` that a replica on a broker that stays could still take over."""
    others = staying - {leaving}
    return sum(
        not others.isdisjoint(topic.partitions[number].replicas)
        for topic, number in led_by(image, leaving)
    )


def checked_sender(
    image: Image,
    request: control_pb2.ControlledShutdownRequest | control_pb2.ReportReplicasRequest,
) -> int:
    """Error code of a broker's request about itself: an old incarnation's is refused (B3)."""
    broker = image.brokers.get(BrokerId(request.broker_id))
    if broker is None or broker.epoch != request.broker_epoch:
        return errors_pb2.STALE_BROKER_EPOCH
    return errors_pb2.NONE


def led_by(image: Image, broker_id: BrokerId) -> Iterator[tuple[Topic, int]]:
    """Partitions led by a broker, but for those that are being deleted or removed."""
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions[: image.kept(topic)]):
            if partition.leader == broker_id:
                yield topic, number


def _touched(image: Image, steady: Brokers) -> Iterator[tuple[Topic, int]]:
    """Partitions that are not led by a steady broker with a steady ISR.

    Distinct ISRs are few and shared, so most partitions cost one look into a dictionary.
    """
    whole: dict[tuple[BrokerId, ...], bool] = {}
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions[: image.kept(topic)]):
            is_whole = whole.get(partition.isr)
            if is_whole is None:
                is_whole = whole[partition.isr] = steady.issuperset(partition.isr)
            if not is_whole or partition.leader not in steady:
                yield topic, number


def _operation(office: Office, topic: Topic, number: int, decision: Leadership) -> Operation:
    before = topic.partitions[number]
    return partition_change.operation(office, topic.name, topic.topic_id, number, before, decision)
