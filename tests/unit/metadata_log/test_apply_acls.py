"""Access control entries in the metadata log: written by the controller, found by pattern (F3)."""

import pytest

from quorate.common.acl_types import AclOperation, PatternType, ResourceType
from quorate.metadata_log.acls import bindings
from quorate.metadata_log.records import FeatureLevel, ResultCode
from quorate.metadata_log.snapshot.snapshot import decode_snapshot, encode_snapshot
from quorate.metadata_log.tree.tree import children, value_at, walk
from tests.support.acls import Binding, acl, added, log_with, removed
from tests.support.metadata import MetadataLogBuilder

READ, WRITE = AclOperation.READ, AclOperation.WRITE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP

ALICE_READS = acl("User:alice", READ, TOPIC, "orders")
ALICE_WRITES = acl("User:alice", WRITE, TOPIC, "orders")
BOB_READS = acl("User:bob", READ, TOPIC, "orders")
PREFIXED = acl("User:bob", READ, TOPIC, "orders", prefixed=True, deny=True, host="10.0.0.1")
SLASHED = acl("User:*", READ, GROUP, "a/b")
ALL = (ALICE_READS, ALICE_WRITES, BOB_READS, PREFIXED, SLASHED)


def recorded(log: MetadataLogBuilder) -> set[Binding]:
    found = list(bindings(log.image.acls))
    assert len(found) == len(set(found))
    return set(found)


def test_f3_entries_lie_under_their_pattern_and_principal() -> None:
    log = log_with(*ALL)
    assert recorded(log) == set(ALL)
    assert set(log.image.acls[ALICE_READS[0]]) == {"User:alice", "User:bob"}
    assert len(log.image.acls) == 3


def test_adding_an_entry_that_is_there_changes_nothing() -> None:
    log = log_with(*ALL)
    before = log.image.acls
    assert log.write_as_controller(added(ALICE_READS)).ok
    assert log.image.acls is before


@pytest.mark.parametrize("gone", ALL)
def test_removing_takes_that_entry_and_no_other(gone: Binding) -> None:
    log = log_with(*ALL)
    assert log.write_as_controller(removed(gone)).ok
    assert recorded(log) == {one for one in ALL if one != gone}
    before = log.image.acls
    assert log.write_as_controller(removed(gone)).ok
    assert log.image.acls is before


def test_nothing_is_left_of_a_pattern_without_entries() -> None:
    log = log_with(*ALL)
    for one in ALL:
        log.write_as_controller(removed(one))
    assert not log.image.acls


def test_e3_only_a_controller_in_office_writes_them() -> None:
    log = log_with()
    assert log.write(added(ALICE_READS)).results[0].code is ResultCode.INVALID
    assert log.write(removed(ALICE_READS)).results[0].code is ResultCode.INVALID
    assert not log.image.acls


@pytest.mark.parametrize("record", [added(ALICE_READS), removed(ALICE_READS)])
def test_b4_they_need_metadata_version_3(record: object) -> None:
    log = MetadataLogBuilder(begun=False)
    log.start_broker(1)
    log.elect_controller(1)
    assert log.write_as_controller(FeatureLevel(name="metadata_version", level=2)).ok
    result = log.write_as_controller(record).results[0]  # type: ignore[arg-type]
    assert result.code is ResultCode.INVALID
    assert "needs metadata_version 3" in result.detail
    assert log.write_as_controller(FeatureLevel(name="metadata_version", level=3)).ok
    assert log.write_as_controller(record).ok  # type: ignore[arg-type]


def test_a_refused_transaction_takes_its_entries_along() -> None:
    log = log_with(ALICE_READS)
    before = log.image.acls
    refused = FeatureLevel(name="metadata_version", level=99)
    assert not log.write_as_controller(added(BOB_READS), removed(ALICE_READS), refused).ok
    assert log.image.acls == before


def test_they_survive_a_snapshot() -> None:
    log = log_with(*ALL)
    assert decode_snapshot(encode_snapshot(log.image)) == log.image


def test_they_show_as_kafka_kept_them_in_zookeeper() -> None:
    log = log_with(*ALL)
    assert children(log.image, "/acls") == ["group", "topic"]
    assert children(log.image, "/acls/topic") == ["literal", "prefixed"]
    assert children(log.image, "/acls/group/literal") == ["a%2Fb"]
    assert children(log.image, "/acls/cluster") is None
    assert children(log.image, "/acls/topic/literal/orders") == []
    assert children(log.image, "/acls/topic/literal/orders/below") is None
    assert value_at(log.image, "/acls/topic/literal") is None
    assert value_at(log.image, "/acls/topic/literal/gone") is None
    assert value_at(log.image, "/acls/nonsense/literal/orders") is None
    assert value_at(log.image, "/acls/topic/prefixed/orders") == {
        "version": 1,
        "acls": [
            {
                "principal": "User:bob",
                "permissionType": "deny",
                "operation": "read",
                "host": "10.0.0.1",
            }
        ],
    }
    assert list(walk(log.image, "/acls")) == [
        "/acls/group/literal/a%2Fb",
        "/acls/topic/literal/orders",
        "/acls/topic/prefixed/orders",
    ]


def test_what_a_newer_version_wrote_shows_by_its_number() -> None:
    newer = acl("User:a", READ, TOPIC, "x")
    newer = (newer[0]._replace(resource_type=99), newer[1])
    log = log_with(newer)
    assert children(log.image, "/acls") == ["99"]
    assert value_at(log.image, "/acls/99/literal/x") is not None
    assert PatternType(newer[0].pattern_type) is PatternType.LITERAL
