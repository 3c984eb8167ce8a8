"""Random transactions over a small world: one log gives one image, and the rules hold in each."""

from collections.abc import Iterator

import hypothesis.strategies as st
import msgspec
from hypothesis import given, settings

from quorate.common.types import (
    NO_BROKER,
    NO_SESSION,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderEpoch,
    MetadataOffset,
)
from quorate.metadata_log import records as r
from quorate.metadata_log.apply import Applied, apply, apply_run
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.image import Image
from tests.support.examples import examples
from tests.support.metadata import (
    MetadataLogBuilder,
    first_voter_set,
    quorum_voter,
    scram_credential,
    session_of,
    topic_id_of,
)

TABLES = (
    "sessions",
    "brokers",
    "topics",
    "topic_names",
    "deletions",
    "reassignments",
    "additions",
    "removals",
    "acls",
    "configs",
    "features",
    "client_quotas",
    "scram",
    "tokens",
    "pipelines",
)
CHANGED_TABLES = tuple(name for name in TABLES if name != "topic_names")
SCALARS = ("controller", "controller_epoch", "next_producer_id", "voter_set")


def world() -> Image:
    """Three brokers, broker 1 the controller, two topics: most random records nearly fit."""
    return world_at(NEWEST_METADATA_VERSION)


def world_at(level: int) -> Image:
    """The same, of a quorum that began at that metadata version."""
    log = MetadataLogBuilder(begun=False)
    log.write(msgspec.structs.replace(first_voter_set(), metadata_version=level))
    for broker_id in (1, 2, 3):
        log.start_broker(broker_id)
    log.elect_controller(1)
    log.create_topic("a", (1, 2, 3), (2, 3, 1))
    log.create_topic("b", (3, 1))
    return log.image


WORLD = world()

brokers = st.sampled_from([BrokerId(b) for b in (1, 2, 3)])
broker_lists = st.lists(brokers, max_size=3, unique=True).map(tuple)
sessions = st.builds(session_of, st.integers(1, 3), st.integers(0, 1))
topics = st.sampled_from(["a", "b"])
topic_ids = st.builds(topic_id_of, topics, st.sampled_from([0, 0, 0, 1]))
versions = st.integers(0, 3)
epochs = st.integers(0, 3)
controller_epochs = st.integers(1, 2)
voters = st.builds(quorum_voter, st.integers(1, 3), observer=st.booleans())
endpoint = st.just(Endpoint("host", 1))

records = st.one_of(
    st.builds(
        r.SessionOpened,
        session_id=sessions,
        timeout_ms=st.integers(0, 1),
        broker_id=brokers | st.just(NO_BROKER),
    ),
    st.builds(r.SessionClosed, session_id=sessions),
    st.builds(
        r.ControllerClaim,
        broker_id=brokers,
        session_id=sessions,
        timestamp_ms=st.just(0),
        controller_epoch=controller_epochs,
    ),
    st.builds(r.ControllerRemoved, broker_id=brokers | st.just(NO_BROKER)),
    st.builds(
        r.BrokerRegistration,
        broker_id=brokers,
        session_id=sessions,
        incarnation_id=st.sampled_from([b"process 00000001", b"process 00000002"]),
        kafka=endpoint,
        grpc=endpoint,
    ),
    st.builds(
        r.TopicCreated,
        name=topics,
        topic_id=topic_ids,
        partitions=st.lists(
            st.builds(
                r.NewPartition,
                replicas=st.just((BrokerId(1), BrokerId(2))),
                leader=brokers,
                isr=broker_lists,
            ),
            max_size=2,
        ).map(tuple),
        controller_id=brokers,
        controller_epoch=controller_epochs,
    ),
    st.builds(r.TopicRemoved, name=topics, topic_id=topic_ids),
    st.builds(r.TopicDeletionPending, name=topics, topic_id=topic_ids),
    st.builds(
        r.PartitionChange,
        topic=topics,
        topic_id=topic_ids,
        partition=st.integers(0, 2),
        expected_version=versions,
        leader=brokers | st.just(NO_BROKER),
        leader_epoch=epochs,
        isr=broker_lists,
        controller_id=st.just(BrokerId(1)),
        controller_epoch=controller_epochs,
    ),
    st.builds(
        r.PartitionReassignment,
        topic=topics,
        topic_id=topic_ids,
        partition=st.integers(0, 2),
        expected_version=versions,
        replicas=broker_lists,
        leader=brokers | st.just(NO_BROKER),
        leader_epoch=epochs,
        isr=broker_lists,
        target=broker_lists,
        original=st.sampled_from([(), (1, 2, 3), (2, 3, 1), (3, 1)]),
        controller_id=st.just(BrokerId(1)),
        controller_epoch=controller_epochs,
    ),
    st.builds(
        r.PartitionAdditionPending,
        topic=topics,
        topic_id=topic_ids,
        first_partition=st.integers(0, 3),
        replicas=st.lists(broker_lists, max_size=2).map(tuple),
    ),
    st.builds(
        r.PartitionsAdded,
        topic=topics,
        topic_id=topic_ids,
        first_partition=st.integers(0, 3),
        partitions=st.lists(
            st.builds(r.NewPartition, replicas=broker_lists, leader=brokers, isr=broker_lists),
            max_size=2,
        ).map(tuple),
        controller_id=st.just(BrokerId(1)),
        controller_epoch=controller_epochs,
    ),
    st.builds(
        r.PartitionRemovalPending,
        topic=topics,
        topic_id=topic_ids,
        first_partition=st.integers(0, 3),
    ),
    st.builds(
        r.PartitionsRemoved,
        topic=topics,
        topic_id=topic_ids,
        first_partition=st.integers(0, 3),
    ),
    st.builds(
        r.IsrChange,
        topic=topics,
        topic_id=topic_ids,
        partition=st.integers(0, 2),
        expected_version=versions,
        leader=brokers,
        leader_broker_epoch=st.sampled_from([b.epoch for b in WORLD.brokers.values()]),
        leader_epoch=epochs,
        isr=st.lists(
            st.builds(r.IsrMember, broker_id=brokers, broker_epoch=st.just(BrokerEpoch(2))),
            max_size=3,
        ).map(tuple),
    ),
    *(
        st.builds(
            kind,
            resource_type=st.just(2),
            pattern_type=st.just(3),
            resource_name=topics,
            principal=st.sampled_from(["User:a", "User:b"]),
            host=st.just("*"),
            operation=st.integers(3, 4),
            permission=st.just(3),
        )
        for kind in (r.AclAdded, r.AclRemoved)
    ),
    st.builds(
        r.ConfigSet,
        entity_type=st.just("topic"),
        entity_name=topics,
        key=st.just("k"),
        value=st.none() | st.just("v"),
    ),
    st.builds(
        r.FeatureLevel,
        name=st.sampled_from(["inter_broker_protocol", "metadata_version"]),
        level=st.integers(0, 3),
    ),
    st.builds(r.ProducerIdBlock, next_producer_id=st.integers(0, 3)),
    st.builds(
        r.ClientQuotaSet,
        user=st.sampled_from([None, "", "u"]),
        client_id=st.sampled_from([None, "c"]),
        key=st.sampled_from(["controller_mutation_rate", "k"]),
        value=st.sampled_from([None, 1.0, 0.0]),
    ),
    st.builds(
        r.IpQuotaSet,
        ip=st.sampled_from(["", "10.0.0.9"]),
        key=st.sampled_from(["connection_creation_rate", ""]),
        value=st.sampled_from([None, 1.0, 0.0]),
    ),
    st.builds(r.ScramDecoyKeySet, key=st.sampled_from([b"", bytes(32), b"k" * 32])),
    st.builds(
        r.ScramCredentialSet,
        user=st.sampled_from(["", "u"]),
        mechanism=st.integers(0, 2),
        credential=st.builds(scram_credential, st.integers(1, 2), st.sampled_from([4_095, 4_096])),
    ),
    st.builds(r.ScramCredentialRemoved, user=st.just("u"), mechanism=st.integers(1, 2)),
    st.builds(
        r.DelegationTokenSet,
        token_id=st.sampled_from(["", "t", "u"]),
        owner=st.sampled_from(["User:a", "User:b"]),
        requester=st.just("User:a"),
        renewers=st.just(()),
        issue_ms=st.just(1),
        expiry_ms=st.integers(0, 4),
        max_ms=st.just(3),
    ),
    st.builds(
        r.ChangeNote,
        principal=st.just("User:a"),
        client_host=st.just("h"),
        client_id=st.just("c"),
        api=st.just("AlterConfigs"),
    ),
    st.builds(r.DelegationTokenRemoved, token_id=st.sampled_from(["t", "u"])),
    st.builds(
        r.ReplicasLost,
        broker_id=brokers,
        session_id=sessions,
        replicas=st.lists(
            st.builds(r.LostReplica, topic_id=topic_ids, partition=st.integers(-1, 2)), max_size=2
        ).map(tuple),
    ),
    st.builds(
        r.FolderMarks,
        marks=st.lists(
            st.builds(r.FolderMark, session_id=sessions, mark=st.integers(-1, 5)), max_size=2
        ).map(tuple),
    ),
    st.builds(
        r.PipelineSet,
        name=st.sampled_from(["", "p", "q"]),
        expected_version=st.just(0) | versions,
        run_epoch=st.just(0) | versions,
        sink=st.just("s"),
        topics=st.lists(
            st.builds(
                r.PipelineTopicOffsets,
                topic=topics,
                topic_id=topic_ids,
                offsets=st.lists(st.integers(-2, 3), max_size=2).map(tuple),
            ),
            max_size=2,
        ).map(tuple),
        run=st.builds(r.PipelineRun),
        rewound=st.booleans(),
    ),
    st.builds(
        r.PipelineRemoved, name=st.sampled_from(["p", "q"]), expected_version=st.just(0) | versions
    ),
    st.builds(
        r.SessionSilences,
        silences=st.lists(
            st.builds(r.SessionSilence, session_id=sessions, quarters=st.integers(0, 5)),
            max_size=2,
        ).map(tuple),
    ),
    st.builds(
        r.QuorumVoterSet,
        expected_version=st.just(0) | versions,
        voters=st.lists(voters, min_size=1, max_size=3, unique_by=lambda v: v.voter_id).map(tuple),
    ),
)
conditions = st.lists(
    st.builds(r.ControllerEpochIs, controller_epoch=st.just(ControllerEpoch(1))), max_size=1
).map(tuple)
operations = st.builds(
    r.Operation, records=st.lists(records, min_size=1, max_size=3).map(tuple), conditions=conditions
)
transactions = st.builds(
    r.Transaction,
    operations=st.lists(operations, min_size=1, max_size=4).map(tuple),
    atomic=st.booleans(),
    client_id=st.just(NO_SESSION) | sessions,
    sequence=st.integers(0, 3),
    low_water=st.integers(0, 2),
)
logs = st.lists(transactions, min_size=1, max_size=8)


def replay(log: list[r.Transaction]) -> Iterator[tuple[Image, r.Transaction, Applied]]:
    """(image before, transaction, applied) along the log, from ``WORLD`` on."""
    image = WORLD
    for transaction in log:
        applied = apply(image, MetadataOffset(image.offset + 1), transaction)
        yield image, transaction, applied
        image = applied.image


def same_state(one: Image, other: Image) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in (*TABLES, *SCALARS))


@given(logs)
@settings(max_examples=examples(40))
def test_one_log_gives_one_image_and_one_sequence_of_results(log: list[r.Transaction]) -> None:
    first, second = list(replay(log)), list(replay(log))
    assert [applied for *_, applied in first] == [applied for *_, applied in second]


@given(logs, st.lists(st.integers(1, 5), max_size=8))
@settings(max_examples=examples(40))
def test_a_run_gives_what_its_transactions_give_one_by_one(
    log: list[r.Transaction], lengths: list[int]
) -> None:
    one_by_one = [applied for *_, applied in replay(log)]
    image, start = WORLD, 0
    for length in (*lengths, len(log)):
        singles, start = one_by_one[start : start + length], start + length
        run = apply_run(
            image,
            [(each.image.offset, log[each.image.offset - 1 - WORLD.offset]) for each in singles],
        )
        assert run.results == [each.result for each in singles]
        assert run.image == (singles[-1].image if singles else image)
        for table in CHANGED_TABLES:
            changed = frozenset().union(*(getattr(each.changes, table) for each in singles))
            assert getattr(run.changes, table) == changed, table
        image = run.image


@given(logs)
@settings(max_examples=examples(40))
def test_refused_atomic_transaction_leaves_no_trace(log: list[r.Transaction]) -> None:
    for before, transaction, applied in replay(log):
        first_applied_here = applied.result.offset == applied.image.offset
        if transaction.atomic and first_applied_here and not applied.result.ok:
            assert all(not result.ok for result in applied.result.results)
            assert same_state(before, applied.image)


@given(logs)
@settings(max_examples=examples(40))
def test_refused_operations_might_as_well_not_have_been_there(log: list[r.Transaction]) -> None:
    for before, transaction, applied in replay(log):
        if transaction.client_id != NO_SESSION:
            continue
        held = tuple(
            operation
            for operation, result in zip(
                transaction.operations, applied.result.results, strict=True
            )
            if result.ok
        )
        alone = msgspec.structs.replace(transaction, operations=held, atomic=False)
        assert apply(before, applied.image.offset, alone).image == applied.image


@given(logs)
@settings(max_examples=examples(40))
def test_an_image_is_never_changed_by_what_follows(log: list[r.Transaction]) -> None:
    images = [image for image, *_ in replay(log)]
    assert images == [image for image, *_ in replay(log)]
    assert world() == WORLD


@given(logs)
@settings(max_examples=examples(40))
def test_changes_name_exactly_the_keys_that_may_differ(log: list[r.Transaction]) -> None:
    for before, _, applied in replay(log):
        after, changes = applied.image, applied.changes
        for name in CHANGED_TABLES:
            old, new = getattr(before, name), getattr(after, name)
            differ = {key for key in {*old, *new} if old.get(key) != new.get(key)}
            assert differ <= getattr(changes, name), name
        assert changes.controller or before.controller == after.controller


@given(logs)
@settings(max_examples=examples(40))
def test_a_retry_is_told_the_same_and_changes_nothing(log: list[r.Transaction]) -> None:
    for _, transaction, applied in replay(log):
        kept = applied.image.results.get(transaction.client_id)
        if kept is None or transaction.sequence not in kept.by_sequence:
            continue
        offset = MetadataOffset(applied.image.offset + 1)
        again = apply(applied.image, offset, transaction)
        assert again.result == applied.result
        assert same_state(again.image, applied.image)


@given(logs)
@settings(max_examples=examples(60))
def test_c1_e2_rules_hold_in_every_image(log: list[r.Transaction]) -> None:
    for before, _, applied in replay(log):
        assert_consistent(applied.image)
        assert_only_forward(before, applied.image)


def assert_consistent(image: Image) -> None:
    """Invariants of any one image."""
    assert {topic.topic_id: name for name, topic in image.topics.items()} == dict(image.topic_names)
    assert set(image.deletions) <= set(image.topics)
    assert set(image.results) <= set(image.sessions)
    assert all(by_principal for by_principal in image.acls.values())
    for broker_id, broker in image.brokers.items():
        assert broker.broker_id == broker_id
        assert broker.registration.session_id in image.sessions
    if image.controller is not None:
        assert image.controller.session_id in image.sessions
    for topic in image.topics.values():
        first_partitions = [one.first_partition for one in topic.removals]
        assert first_partitions == sorted(set(first_partitions))
        assert list(topic.removals) == sorted(topic.removals, key=lambda one: one.offset)
        for number, partition in enumerate(topic.partitions):
            if topic.removed_at(number):
                assert partition.leader_epoch > 0
            assert len(set(partition.isr)) == len(partition.isr)
            assert set(partition.isr) <= set(partition.replicas)
            assert partition.leader == NO_BROKER or partition.leader in partition.isr
    for name, addition in image.additions.items():
        assert addition.topic_id == image.topics[name].topic_id
        assert addition.first_partition == len(image.topics[name].partitions)
    for name, removal in image.removals.items():
        assert removal.topic_id == image.topics[name].topic_id
        assert 0 < removal.first_partition < len(image.topics[name].partitions)
        assert name not in image.additions
    for name, pending in image.reassignments.items():
        assert pending
        for number, one in pending.items():
            replicas = image.topics[name].partitions[number].replicas
            assert set(replicas) == {*one.target, *one.original}


def assert_only_forward(before: Image, after: Image) -> None:
    """Epochs and versions only grow, and a new leader means a new leader epoch."""
    assert after.controller_epoch - before.controller_epoch >= 0
    assert after.next_producer_id >= before.next_producer_id
    for topic in before.topics.values():
        successor = after.topic_by_id(topic.topic_id)
        if successor is None:
            continue
        assert successor.leader_epoch_floor >= topic.leader_epoch_floor
        for number, old in enumerate(topic.partitions):
            if successor.removed_at(number) > before.offset:
                assert successor.leader_epoch_floor > old.leader_epoch
                continue
            new = successor.partitions[number]
            assert new.version >= old.version
            assert (new == old) == (new.version == old.version)
            assert LeaderEpoch(new.leader_epoch) >= old.leader_epoch
            assert new.leader == old.leader or new.leader_epoch > old.leader_epoch
    for broker_id, broker in after.brokers.items():
        known = before.brokers.get(broker_id)
        assert known is None or broker.epoch >= known.epoch
