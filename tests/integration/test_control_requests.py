"""What the controller of a real cluster sends, and which commands its brokers refuse.

Brokers 4 and 5 are the test's own: they keep what they receive, byte for byte.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count

import msgspec
import pytest
from confluent_kafka import Producer

from quorate.client.results import (
    ElectionType,
    NewTopic,
    PartitionInfo,
    PartitionName,
    QuotaAlteration,
    QuotaEntity,
    TopicResult,
)
from quorate.common.types import (
    BrokerId,
    LeaderEpoch,
    TopicId,
)
from quorate.metadata_log.records import (
    ControllerEpochIs,
    IsrChange,
    IsrMember,
    NewPartition,
    Operation,
    PartitionChange,
    ResultCode,
    TopicCreated,
    TopicDeletionPending,
)
from quorate.testing import RunningCluster
from quorate.testing.pytest_plugin import ClusterFactory
from quorate_proto.v1 import control_pb2, errors_pb2
from tests.support.acked_load import consume_all
from tests.support.commander import Commander, leadership
from tests.support.raw_client import RawClient, produce, record_batch
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_known
from tests.support.witnesses import Stage, witnesses

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

MANY = 100
_names = (f"control-{number}" for number in count())


@pytest.fixture(scope="module")
def stage(module_quorate_cluster: ClusterFactory) -> Iterator[Stage]:
    """Three brokers whose sessions are short, and two witnesses.

    At this level requests have the content that the witnesses look at.
    """
    cluster = module_quorate_cluster(
        brokers=3,
        config={
            "security.protocol": "PLAINTEXT",
            "broker.session.timeout.ms": 2_000,
            "inter.broker.protocol.version": 2,
            "auto.leader.rebalance.enable": False,  # The tests alone move leadership.
        },
    )
    with witnesses(cluster, (4, 5)) as stage:
        wait_until(lambda: len(cluster.status().brokers) == 5, "five brokers")
        yield stage


@pytest.fixture
def topic() -> str:
    return next(_names)


@pytest.fixture(autouse=True)
def _whole(stage: Stage) -> None:
    """Whatever the test before has stopped is back."""
    wait_until(
        lambda: len(stage.cluster.status().brokers) == 5 and stage.cluster.controller_id() > 0,
        "all brokers",
        timeout_s=30,
    )


def create(cluster: RunningCluster, name: str, *assignments: Sequence[int]) -> None:
    """Create a topic, perhaps while the controller changes: a client that looks for it asks the
    witnesses as well, which have no Admin service, and gives up.
    """

    def answer() -> TopicResult:
        with cluster.admin() as admin:
            return admin.create_topics([NewTopic(name=name, assignments=assignments)])[0]

    wait_until(answer, "an answer of the controller").raise_for_error()


def partitions(cluster: RunningCluster, name: str) -> Sequence[PartitionInfo]:
    with cluster.admin() as admin:
        return admin.describe_topics([name])[0].partitions


def lead_from(cluster: RunningCluster, name: str, *replicas: int) -> None:
    """Make the first of them the leader of partition 0, by reassignment and election."""
    where = PartitionName(topic=name, partition=0)
    with cluster.admin() as admin:
        admin.alter_partition_reassignments({where: replicas})
        wait_until(
            lambda: partitions(cluster, name)[0].replicas == replicas, f"replicas {replicas}"
        )
        wait_until(lambda: set(partitions(cluster, name)[0].isr) == set(replicas), "all in sync")

        def leads_first() -> bool:
            # An election is refused while the controller does not see the broker as reachable.
            admin.elect_leaders(ElectionType.PREFERRED, [where])
            return partitions(cluster, name)[0].leader == replicas[0]

        wait_until(leads_first, "the leader")


def write(cluster: RunningCluster, name: str, values: Sequence[str]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for value in values:
        producer.produce(name, value.encode(), partition=0)
    assert producer.flush(30) == 0


def stored(cluster: RunningCluster, name: str) -> list[bytes]:
    found = consume_all(cluster.bootstrap, name, 1)
    return [value for _, _, value in sorted(place for at in found.values() for place in at)]


# --- what the controller sends --------------------------------------------------------------------


def test_b1_c20_e3_metadata_is_the_same_bytes_for_all_and_leadership_the_receivers_own(
    stage: Stage, topic: str
) -> None:
    fourth, fifth = stage.witnesses
    earlier = next(_names)
    for name in (earlier, topic):  # Both have heard everything before the second one.
        create(stage.cluster, name, (4, 1), (5, 1), (1, 2))
        wait_until(partial(_are_told, stage, name), "both to be told")
    assert fourth.told(topic)[0] == fifth.told(topic)[0]
    for witness, own in ((fourth, 0), (fifth, 1)):
        wait_until(partial(witness.led, topic), "its leadership")
        request = witness.led(topic)[-1]
        (told,) = (one for one in request.topics if one.topic == topic)
        (led,) = told.partitions
        assert (led.partition, led.leader, list(led.isr), list(led.replicas)) == (
            own,
            witness.broker_id,
            [witness.broker_id, 1],
            [witness.broker_id, 1],
        )
        assert (led.leader_epoch, led.record_version) == (0, 0)
        status, header = stage.cluster.status(), request.header
        assert (header.type, header.version) == (4, 5)
        assert (header.controller_id, header.controller_epoch) == (
            status.controller_id,
            status.controller_epoch,
        )
        assert header.max_broker_epoch == max(broker.epoch for broker in status.brokers)
        assert header.broker_epoch == -1
        assert header.ack_timeout_ms > 0


def _are_told(stage: Stage, name: str) -> bool:
    return all(witness.told(name) for witness in stage.witnesses)


def test_c8_a_deletion_outranks_every_leader_epoch(stage: Stage, topic: str) -> None:
    fourth, _ = stage.witnesses
    create(stage.cluster, topic, (4, 1), (1, 4))
    with stage.cluster.admin() as admin:
        admin.delete_topics([topic])[0].raise_for_error()
    (stop,) = fourth.stopped(topic)
    assert {(one.partition, one.leader_epoch, one.delete_data) for one in stop.partitions} == {
        (0, -2, True),
        (1, -2, True),
    }
    assert (stop.header.type, stop.header.version) == (5, 4)


def test_c3_e6_a_failover_is_one_transaction_one_command_and_told_to_all(
    stage: Stage, topic: str
) -> None:
    fourth, fifth = stage.witnesses
    cluster = stage.cluster
    victim = next(one for one in cluster.broker_ids if one != cluster.controller_id())
    create(cluster, topic, *[(victim, 4)] * MANY)
    wait_until(partial(fifth.told, topic), "everybody to know the topic")
    before, since = len(fifth.told(topic)), stage.desk.image().offset
    cluster.kill_broker(victim)
    try:
        wait_until(lambda: len(fourth.led(topic)) > 1, "its leaderships", timeout_s=20)
        (told,) = (one for one in fourth.led(topic)[1].topics if one.topic == topic)
        assert len(told.partitions) == MANY, "many partitions in one request"
        assert {(one.leader, one.leader_epoch) for one in told.partitions} == {(4, 1)}
        assert {tuple(one.isr) for one in told.partitions} == {(4,)}
        wait_until(lambda: len(fifth.told(topic)) > before, "a broker without any of it to hear")
        written = {
            offset
            for offset, transaction in stage.desk.transactions(since)
            for operation in transaction.operations
            for record in operation.records
            if isinstance(record, PartitionChange) and record.topic == topic
        }
        assert len(written) == 1, "all of them in one transaction"
    finally:
        cluster.restart_broker(victim)


def test_c7_e6_a_new_controller_reads_its_state_and_begins_with_everything(
    stage: Stage, topic: str
) -> None:
    """INIT names all partitions of its receiver, and the first UpdateMetadata all topics."""
    fourth, _ = stage.witnesses
    cluster = stage.cluster
    create(cluster, topic, (4, 1), (1, 4), (1, 2))
    wait_until(partial(fourth.led, topic), "the first controller's word")
    before, seen = cluster.status(), len(fourth.received)
    successor = next(one for one in cluster.broker_ids if one != before.controller_id)
    with cluster.admin() as admin:
        admin.move_controller(successor)

    def init() -> list[control_pb2.LeaderAndIsrRequest]:
        later = fourth.received[seen:]
        return [one.request for one in later if one.kind == "LeaderAndIsr" and one.request.is_init]

    wait_until(init, "an INIT")
    first, image = init()[0], stage.desk.image()
    assert (first.header.controller_id, first.header.controller_epoch) == (
        successor,
        before.controller_epoch + 1,
    )
    assert {(one.topic, led.partition) for one in first.topics for led in one.partitions} == {
        (name, number)
        for name, one in image.topics.items()
        for number, leaf in enumerate(one.partitions)
        if 4 in leaf.replicas
    }
    wait_until(
        lambda: any(
            one.kind == "UpdateMetadata"
            and one.request.full
            and {told.topic for told in one.request.topics} == set(image.topics)
            for one in fourth.received[seen:]
        ),
        "all metadata",
    )


def test_c17_a_broker_that_does_not_answer_holds_up_nobody_and_each_is_told_in_order(
    stage: Stage, topic: str
) -> None:
    fourth, fifth = stage.witnesses
    fifth.may_answer.clear()
    try:
        create(stage.cluster, topic, (4, 5), (5, 4))
        later = next(_names)
        create(stage.cluster, later, (4, 5))
        wait_until(partial(fourth.led, later), "the other one to lead")
        assert not fifth.led(later), "one request at a time, in order"
    finally:
        fifth.may_answer.set()
    wait_until(partial(fifth.led, later), "it to go on")
    for witness in (fourth, fifth):
        offsets = [
            one.request.header.metadata_offset
            for one in witness.received
            if one.kind == "LeaderAndIsr"
        ]
        assert offsets == sorted(offsets)


def test_c21_where_the_elected_leader_cannot_lead_another_is_elected(
    stage: Stage, topic: str
) -> None:
    fourth, _ = stage.witnesses
    fourth.broken.add(topic)
    create(stage.cluster, topic, (4, 1))
    wait_until(lambda: partitions(stage.cluster, topic)[0].leader == 1, "another leader")
    assert partitions(stage.cluster, topic)[0].isr == (1,)
    write(stage.cluster, topic, ["a record"])
    alert = f"LeaderAndIsr to broker 4 failed for 1 partitions, {topic}-0 among them"
    wait_until(lambda: any(alert in one for one in alerts(stage.cluster)), "an alert")
    fourth.broken.clear()
    with stage.cluster.admin() as admin:
        admin.delete_topics([topic])


def test_q15_a_change_of_the_controller_gives_no_second_burst(stage: Stage, topic: str) -> None:
    """The client may have 11 partitions created at once, and one a second."""
    cluster = stage.cluster
    mine = QuotaEntity(client_id="quorate-testing")
    with cluster.admin() as admin:
        admin.alter_client_quotas([QuotaAlteration(mine, {"controller_mutation_rate": 1})])
    try:
        create(cluster, topic, *[(1,)] * 11)
        before = cluster.controller_id()
        with cluster.admin() as admin:
            admin.move_controller(next(one for one in cluster.broker_ids if one != before))
        wait_until(lambda: cluster.controller_id() not in (-1, before), "another controller")
        create(cluster, next(_names), *[(1,)] * 11)
        assert tokens_of(cluster, "quorate-testing") < -4, "not 0, as with a full bucket"
    finally:
        with cluster.admin() as admin:
            admin.alter_client_quotas([QuotaAlteration(mine, {"controller_mutation_rate": None})])


def tokens_of(cluster: RunningCluster, client_id: str) -> float:
    with cluster.admin() as admin:
        return max(
            one.value
            for one in admin.metrics()
            if (one.group, one.name) == ("ControllerMutation", "tokens")
            and one.tags["client-id"] == client_id
        )


# --- what brokers obey ----------------------------------------------------------------------------


def leads(cluster: RunningCluster, broker_id: int, name: str) -> int:
    """The error code of a Produce at that broker."""
    with RawClient(cluster.broker_address(broker_id)) as client:
        return produce(client, name, 0, record_batch(b"x")).error_code


def test_e3_b2_c20_commands_of_deposed_controllers_and_for_earlier_incarnations_are_refused(
    stage: Stage, topic: str
) -> None:
    cluster = stage.cluster
    create(cluster, topic, (1, 2))
    status = cluster.status()
    own = next(broker.epoch for broker in status.brokers if broker.id == 1)
    commander = Commander(stage, 1)
    deposed = commander.lead(controller_epoch=status.controller_epoch - 1)
    assert (deposed.error_code, deposed.controller_epoch, deposed.version_id) == (
        errors_pb2.STALE_CONTROLLER_EPOCH,
        status.controller_epoch,
        5,
    )
    assert commander.lead(max_broker_epoch=own - 1).error_code == errors_pb2.STALE_BROKER_EPOCH
    assert commander.lead(max_broker_epoch=own).error_code == errors_pb2.NONE
    assert commander.lead(max_broker_epoch=2**40).error_code == errors_pb2.NONE
    older_form = {"max_broker_epoch": -1, "broker_epoch": own - 1}
    assert commander.stop(**older_form).error_code == errors_pb2.STALE_BROKER_EPOCH
    assert commander.stop(max_broker_epoch=-1, broker_epoch=own).version_id == 4


def test_b1_c20_partitions_of_others_are_refused_one_by_one(stage: Stage, topic: str) -> None:
    cluster, others = stage.cluster, next(_names)
    create(cluster, topic, (1, 2))
    create(cluster, others, (2, 3))
    answer = Commander(stage, 1).lead(leadership(stage, topic), leadership(stage, others))
    assert [(one.topic, one.error_code) for one in answer.partitions] == [
        (topic, errors_pb2.NONE),
        (others, errors_pb2.INVALID_REQUEST),
    ]


def test_c6_c8_c17_leadership_moves_and_what_is_older_is_skipped(stage: Stage, topic: str) -> None:
    """The deposed leader stops accepting and fetches; the new one accepts, and has everything."""
    cluster = stage.cluster
    create(cluster, topic, (1, 2))
    wait_until_known(cluster, topic, 1)
    write(cluster, topic, ["a", "b"])
    before = leadership(stage, topic)
    lead_from(cluster, topic, 2, 1)
    wait_until(lambda: leads(cluster, 1, topic) == errors_pb2.NOT_LEADER_OR_FOLLOWER, "1 to follow")
    write(cluster, topic, ["c"])
    assert stored(cluster, topic) == [b"a", b"b", b"c"]
    assert partitions(cluster, topic)[0].leader_epoch > 0
    (late,) = Commander(stage, 1).lead(before).partitions
    assert late.error_code == errors_pb2.NONE
    assert leads(cluster, 1, topic) == errors_pb2.NOT_LEADER_OR_FOLLOWER, "an old command"
    stop = control_pb2.StoppedPartition(
        topic=topic, topic_id=before.topic_id, partition=0, leader_epoch=0, delete_data=True
    )
    (refused,) = Commander(stage, 2).stop(stop).partitions
    assert refused.error_code == errors_pb2.FENCED_LEADER_EPOCH
    lead_from(cluster, topic, 1, 2)
    wait_until(lambda: leads(cluster, 1, topic) == errors_pb2.NONE, "1 to lead again")
    assert stored(cluster, topic) == [b"a", b"b", b"c", b"x"]


def test_e3_a_broker_that_knows_a_later_controller_ends_the_tenure(
    stage: Stage, topic: str
) -> None:
    cluster = stage.cluster
    before = cluster.status()
    told = next(one for one in cluster.broker_ids if one != before.controller_id)
    answer = Commander(stage, told).lead(controller_epoch=before.controller_epoch + 1)
    assert answer.error_code == errors_pb2.NONE
    create(cluster, topic, (told,))
    wait_until(
        lambda: (
            cluster.status().controller_epoch > before.controller_epoch
            and cluster.controller_id() > 0
        ),
        "another tenure",
        timeout_s=20,
    )
    create(cluster, next(_names), (1, 2, 3))


def test_c7_what_a_controller_does_not_list_is_set_aside_and_deleted(
    stage: Stage, topic: str
) -> None:
    """A broker sleeps past its session; meanwhile one of its topics is deleted."""
    cluster = stage.cluster
    sleeper = next(one for one in cluster.broker_ids if one != cluster.controller_id())
    other = next(one for one in cluster.broker_ids if one != sleeper)
    create(cluster, topic, (sleeper, other))
    write(cluster, topic, ["a record"])
    cluster.pause_broker(sleeper)
    try:
        wait_until(lambda: len(cluster.status().brokers) == 4, "it to be missed", timeout_s=20)
        with cluster.admin() as admin:
            admin.delete_topics([topic])[0].raise_for_error()
    finally:
        cluster.resume_broker(sleeper)

    def said(what: str) -> bool:
        return any(what in line and topic in line for line in cluster.broker_log(sleeper, 300))

    wait_until(lambda: said("not listed, set aside"), "it to be set aside", timeout_s=20)
    wait_until(lambda: said("deleted the replicas of"), "it to be deleted", timeout_s=20)


def test_c22_a_partition_without_a_live_replica_is_offline_and_an_alert(
    stage: Stage, topic: str
) -> None:
    cluster, lost = stage.cluster, PartitionName(topic=topic, partition=0)
    alone = next(one for one in cluster.broker_ids if one != cluster.controller_id())
    create(cluster, topic, (alone,))
    write(cluster, topic, ["so that its log is on disk, and not taken for lost"])
    cluster.kill_broker(alone)
    try:
        wait_until(lambda: lost in cluster.status().offline_partitions, "it to be offline")
        wait_until(
            lambda: any("partitions are offline: " in one for one in alerts(cluster)), "an alert"
        )
        (known,) = partitions(cluster, topic)
        assert (known.leader, known.isr) == (-1, (alone,)), "its ISR is kept"
    finally:
        cluster.restart_broker(alone)
    wait_until(lambda: partitions(cluster, topic)[0].leader == alone, "it to be led again")
    wait_until(lambda: lost not in cluster.status().offline_partitions, "it not to be offline")


def alerts(cluster: RunningCluster) -> Sequence[str]:
    with cluster.admin() as admin:
        return admin.cluster_alerts()


# --- what the metadata log refuses ----------------------------------------------------------------


def test_c1_leadership_and_isr_are_written_by_compare_and_set(stage: Stage, topic: str) -> None:
    create(stage.cluster, topic, (1, 2))
    status, image = stage.cluster.status(), stage.desk.image()
    leaf = image.topics[topic].partitions[0]
    assert (leaf.controller_id, leaf.controller_epoch) == (
        status.controller_id,
        status.controller_epoch,
    )
    shrink = IsrChange(
        topic=topic,
        topic_id=image.topics[topic].topic_id,
        partition=0,
        expected_version=leaf.version,
        leader=leaf.leader,
        leader_broker_epoch=image.brokers[BrokerId(1)].epoch,
        leader_epoch=leaf.leader_epoch,
        isr=(IsrMember(broker_id=BrokerId(1), broker_epoch=image.brokers[BrokerId(1)].epoch),),
    )
    assert _code(stage, shrink) is ResultCode.OK
    assert _code(stage, shrink) is ResultCode.VERSION_CONFLICT, "its version has passed"
    newer = stage.desk.image().topics[topic].partitions[0]
    assert (newer.version, newer.isr, newer.leader) == (leaf.version + 1, (1,), 1)
    stranger = msgspec.structs.replace(shrink, expected_version=newer.version, leader=BrokerId(2))
    assert _code(stage, stranger) is ResultCode.INVALID, "only the leader"
    usurped = PartitionChange(
        topic=topic,
        topic_id=shrink.topic_id,
        partition=0,
        expected_version=newer.version,
        leader=BrokerId(2),
        leader_epoch=LeaderEpoch(9),
        isr=(BrokerId(2),),
        controller_id=BrokerId(4),
        controller_epoch=image.controller_epoch,
    )
    assert _code(stage, usurped) is not ResultCode.OK, "only the controller changes the leader"


def test_q14_no_raw_write_creates_or_deletes_topics(stage: Stage, topic: str) -> None:
    create(stage.cluster, topic, (1,))
    image = stage.desk.image()
    one = NewPartition(replicas=(BrokerId(1),), leader=BrokerId(1), isr=(BrokerId(1),))
    made = TopicCreated(
        name=next(_names),
        topic_id=TopicId(b"raw topic written"[:16]),
        partitions=(one,),
        controller_id=BrokerId(4),
        controller_epoch=image.controller_epoch,
    )
    gone = TopicDeletionPending(name=topic, topic_id=image.topics[topic].topic_id)
    for record in (made, gone):
        assert _code(stage, record) is ResultCode.INVALID
    office = ControllerEpochIs(controller_epoch=image.controller_epoch)
    answer = stage.desk.write(Operation(records=(made,), conditions=(office,)))
    assert answer.code is ResultCode.CONTROLLER_FENCED, "it is not broker 4's"
    after = stage.desk.image()
    assert set(after.topics) == set(image.topics)
    assert not after.deletions


def _code(
    stage: Stage, record: IsrChange | PartitionChange | TopicCreated | TopicDeletionPending
) -> ResultCode:
    return stage.desk.write(Operation(records=(record,))).code
