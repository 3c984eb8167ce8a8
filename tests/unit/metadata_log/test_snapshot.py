"""An image survives its snapshot; a snapshot that is not whole becomes nobody's state (P11)."""

import gc
import itertools

import immutables
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.common.types import (
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderEpoch,
    MetadataOffset,
    TopicId,
    TopicPartition,
)
from quorate.metadata_log.image import Image
from quorate.metadata_log.partitions import Partition, Topic
from quorate.metadata_log.records import (
    AclAdded,
    BrokerAdmitted,
    ClientQuotaSet,
    ConfigSet,
    DelegationTokenSet,
    FeatureLevel,
    FolderMark,
    FolderMarks,
    IpQuotaSet,
    Listener,
    LostReplica,
    Operation,
    ProducerIdBlock,
    QuorumVoterSet,
    ReplicasLost,
    ScramCredentialSet,
    ScramDecoyKeySet,
    SessionSilence,
    SessionSilences,
    TopicDeletionPending,
    TopicRemoved,
)
from quorate.metadata_log.snapshot import partition_columns
from quorate.metadata_log.snapshot.builder import InvalidSnapshot
from quorate.metadata_log.snapshot.partition_columns import SLICE
from quorate.metadata_log.snapshot.snapshot import decode_snapshot, encode_snapshot
from quorate_proto.v1 import metadata_pb2 as pb
from tests.support.metadata import (
    MetadataLogBuilder,
    begun_pipeline,
    quorum_voter,
    scram_credential,
    session_of,
    topic_id_of,
)


def image_with_everything() -> Image:
    log = MetadataLogBuilder()
    log.image = msgspec.structs.replace(log.image, restored_offset=MetadataOffset(1))
    for broker_id in (1, 2, 3):
        log.start_broker(broker_id)
    guarded = Listener(name="SASL_SSL", endpoint=Endpoint("kafka3", 9094))
    log.register_again(3, listeners=(guarded,))
    log.elect_controller(2)
    log.write_as_controller(
        BrokerAdmitted(broker_id=BrokerId(2), broker_epoch=log.image.brokers[BrokerId(2)].epoch)
    )
    log.create_topic("orders", (1, 2, 3), (2, 3, 1))
    log.create_topic("doomed", (3,))
    log.write_as_controller(TopicDeletionPending(name="doomed", topic_id=topic_id_of("doomed")))
    log.write(SessionSilences(silences=(SessionSilence(session_id=session_of(3), quarters=2),)))
    assert log.reassign(TopicPartition("orders", 1), replicas=(2, 3, 1), target=(2, 1)).ok
    log.create_topic("growing", (1,), (1,), (1,), (1,))
    log.create_topic("shrinking", (1,), (1,))
    for first in (3, 2):
        assert log.remove_partitions("growing", first).ok
        assert log.complete_removal("growing").ok
    assert log.add_partitions("growing", (2, 1), (1, 3)).ok
    assert log.remove_partitions("shrinking", 1).ok
    for host in ("*", "10.0.0.1"):
        log.write_as_controller(
            AclAdded(
                resource_type=2,
                pattern_type=3,
                resource_name="orders",
                principal="User:alice",
                host=host,
                operation=3,
                permission=3,
            )
        )
    for key in ("retention.ms", "cleanup.policy"):
        log.write_as_controller(
            ConfigSet(entity_type="topic", entity_name="orders", key=key, value="1")
        )
    log.write_as_controller(FeatureLevel(name="inter_broker_protocol", level=2))
    log.write_as_controller(ProducerIdBlock(next_producer_id=1_000))
    for user, client_id in (("anna", None), ("", "b"), (None, "")):
        for key, value in (("producer_byte_rate", 2.5), ("controller_mutation_rate", 1e300)):
            log.write_as_controller(
                ClientQuotaSet(user=user, client_id=client_id, key=key, value=value)
            )
    for ip in ("", "10.0.0.9"):
        log.write_as_controller(IpQuotaSet(ip=ip, key="connection_creation_rate", value=2.5))
    log.write_as_controller(ScramDecoyKeySet(key=bytes(range(32))))
    for mechanism in (1, 2):
        log.write_as_controller(
            ScramCredentialSet(
                user="alice", mechanism=mechanism, credential=scram_credential(mechanism)
            )
        )
    for token_id in ("t1", "t2"):
        log.write_as_controller(
            DelegationTokenSet(
                token_id=token_id,
                owner="User:alice",
                requester="User:bob",
                renewers=("User:carol", "User:dave"),
                issue_ms=1,
                expiry_ms=2,
                max_ms=3,
            )
        )
    log.write_as_controller(begun_pipeline())
    log.write(
        ReplicasLost(
            broker_id=BrokerId(3),
            session_id=session_of(3),
            replicas=(LostReplica(topic_id=topic_id_of("orders"), partition=1),),
        ),
        FolderMarks(marks=(FolderMark(session_id=session_of(3), mark=7),)),
    )
    log.create_topic("gone", (1,))
    log.write_as_controller(TopicRemoved(name="gone", topic_id=topic_id_of("gone")))
    log.write(QuorumVoterSet(expected_version=0, voters=(quorum_voter(1), quorum_voter(2))))
    log.transact(Operation(records=()), client_id=session_of(1), sequence=7, low_water=3)
    log.transact(Operation(records=()), client_id=session_of(1), sequence=8, low_water=7)
    assert all(getattr(log.image, name) for name in Image.__struct_fields__)
    return log.image


IMAGE = image_with_everything()
ENCODED = b"".join(encode_snapshot(IMAGE))


@given(st.lists(st.integers(0, len(ENCODED)), max_size=8), st.integers(1, 300))
def test_an_image_survives_its_snapshot_however_it_is_cut(cuts: list[int], size: int) -> None:
    edges = [0, *sorted(cuts), len(ENCODED)]
    chunks = [ENCODED[a:b] for a, b in itertools.pairwise(edges)]
    assert decode_snapshot(chunks) == IMAGE
    assert decode_snapshot(encode_snapshot(IMAGE, chunk_bytes=size)) == IMAGE


@given(st.integers(0, len(ENCODED) - 1))
def test_p11_a_truncated_snapshot_is_refused(size: int) -> None:
    with pytest.raises(InvalidSnapshot):
        decode_snapshot([ENCODED[:size]])


def framed(*records: pb.SnapshotRecord) -> bytes:
    encoded = [record.SerializeToString() for record in records]
    return b"".join(len(one).to_bytes(4, "big") + one for one in encoded)


def image_of_topics(*sizes: int) -> Image:
    """Topics of so many partitions, whose leaves differ in every field."""
    topics = {
        f"t{number}": Topic(
            f"t{number}",
            TopicId(bytes([number]) * 16),
            tuple(
                Partition(
                    replicas=(BrokerId(leaf % 7), BrokerId(leaf % 5 + 7)),
                    leader=BrokerId(leaf % 8 - 1),
                    leader_epoch=LeaderEpoch(leaf),
                    isr=(BrokerId(leaf % 7),) * (leaf % 3),
                    controller_id=BrokerId(leaf % 4 - 1),
                    controller_epoch=ControllerEpoch(leaf % 9),
                    version=leaf << 33,
                )
                for leaf in range(size)
            ),
            MetadataOffset(number),
        )
        for number, size in enumerate(sizes)
    }
    return Image(
        topics=immutables.Map(topics),
        topic_names=immutables.Map({topic.topic_id: name for name, topic in topics.items()}),
    )


def test_topics_of_any_size_survive() -> None:
    image = image_of_topics(0, 1, SLICE - 1, SLICE, SLICE + 1, 2 * SLICE + 3)
    assert decode_snapshot(encode_snapshot(image)) == image


def test_a_partition_takes_few_bytes() -> None:
    size = 10 * SLICE
    assert sum(map(len, encode_snapshot(image_of_topics(size)))) < 20 * size


def test_lists_that_were_met_are_not_walked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 1,000 brokers nearly every partition has a list of its own: a walk per record took two
    minutes for a million.
    """

    def walked(_numbers: object) -> None:
        pytest.fail("all lists are walked for one record")

    monkeypatch.setattr(partition_columns._ListNumbers, "__iter__", walked, raising=False)
    image = image_of_topics(40, 40)
    assert decode_snapshot(encode_snapshot(image)) == image


def test_decoding_leaves_no_garbage_behind() -> None:
    """A cycle would keep a second image of 200,000 partitions until the collector comes by."""
    decode_snapshot([ENCODED])
    gc.collect()
    decode_snapshot([ENCODED])
    assert gc.collect() == 0


def topic(**fields: list[int]) -> pb.SnapshotRecord:
    columns: dict[str, list[int]] = {
        name: [0]
        for name in (
            "replicas",
            "isrs",
            "leaders",
            "leader_epochs",
            "controller_ids",
            "controller_epochs",
            "versions",
        )
    }
    partitions = pb.PartitionColumns(new_lists=[pb.BrokerIds(ids=[1])], **(columns | fields))
    return pb.SnapshotRecord(topic=pb.TopicState(name="t", partitions=partitions))


HEADER = pb.SnapshotRecord(header=pb.SnapshotHeader(format=2, offset=5))


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (framed(pb.SnapshotRecord(header=pb.SnapshotHeader(format=9))), "format 9"),
        (framed(HEADER, pb.SnapshotRecord(footer=pb.SnapshotFooter(records=2))), "1 records of 2"),
        (framed(HEADER, HEADER), "one header"),
        (framed(pb.SnapshotRecord(footer=pb.SnapshotFooter())), "no"),
        (framed(HEADER, pb.SnapshotRecord()), "does not know"),
        (
            framed(HEADER, pb.SnapshotRecord(footer=pb.SnapshotFooter(records=1)), HEADER),
            "after its footer",
        ),
        (framed(HEADER, topic(), topic()), "partition 0 of topic t follows 1"),
        (framed(HEADER, topic(isrs=[1])), "beyond the 1 given"),
        (framed(HEADER, topic(versions=[1, 2])), "the columns have"),
        (b"\x00\x00\x00\x03\xff\xff\xff", "malformed"),
    ],
)
def test_a_malformed_snapshot_is_refused_with_the_reason(encoded: bytes, reason: str) -> None:
    with pytest.raises(InvalidSnapshot, match=reason):
        decode_snapshot([encoded])
