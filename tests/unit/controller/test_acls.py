"""Which access control entries can be added, and which of them a filter means."""

import re
from typing import Any

import pytest

from quorate.broker.controller.managers import acl_manager
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.security.acl_bindings import from_proto
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.common.types import BrokerId, ControllerEpoch
from quorate.metadata_log.records import AclAdded, AclRemoved
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.acls import Binding, acl, log_with

Op = AclOperation
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TENURE = ControllerTenure(BrokerId(1), ControllerEpoch(1))


def binding(**changed: Any) -> admin_pb2.AclBinding:  # noqa: ANN401 - any field's
    fields: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": "orders",
        "pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return admin_pb2.AclBinding(**{**fields, **changed})


@pytest.mark.parametrize(
    "good",
    [
        binding(),
        binding(pattern_type=4),
        binding(operation=2, resource_type=7, resource_name="User:bob"),
        binding(resource_type=4, resource_name="kafka-cluster", operation=12),
        binding(resource_name="*", principal="User:*", permission_type=2),
        binding(principal="User:CN=a, O=b:c"),
        binding(principal="Group:admins"),
    ],
)
def test_what_can_be_recorded_is(good: admin_pb2.AclBinding) -> None:
    (decision,) = acl_manager.create(log_with().image, [good], tenure=TENURE)
    assert not decision.result.error_code
    assert decision.operation is not None
    assert isinstance(decision.operation.records[0], AclAdded)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"resource_type": 0}, "resource type 0"),
        ({"resource_type": 1}, r"resource type 1 \(ANY\)"),
        ({"resource_type": 8}, "resource type 8: must be one of 2"),
        ({"pattern_type": 0}, "pattern type 0"),
        ({"pattern_type": 1}, r"pattern type 1 \(ANY\)"),
        ({"pattern_type": 2}, r"pattern type 2 \(MATCH\).*for filters"),
        ({"operation": 0}, "operation 0"),
        ({"operation": 1}, r"operation 1 \(ANY\)"),
        ({"operation": 15}, "operation 15"),
        ({"operation": 12}, "operation 12 .* type TOPIC: choose ALL, ALTER"),
        ({"resource_type": 3, "operation": 4}, r"operation 4 \(WRITE\).*GROUP"),
        ({"permission_type": 0}, "permission type 0"),
        ({"permission_type": 1}, "permission type 1"),
        ({"permission_type": 4}, "permission type 4"),
        ({"resource_name": ""}, "name of the TOPIC is empty"),
        ({"resource_type": 4, "resource_name": "mine"}, "cluster 'mine'.*'kafka-cluster'"),
        ({"principal": "alice"}, "principal 'alice': must be TYPE:NAME"),
        ({"principal": "User:"}, "principal 'User:'"),
        ({"principal": ":alice"}, "principal ':alice'"),
        ({"principal": ""}, "principal ''"),
        ({"host": ""}, "host is empty"),
        ({"principal": "User:" + "a" * 40_000}, "40005 characters: at most 32767"),
    ],
)
def test_what_means_nothing_is_refused_alone(wrong: dict[str, Any], said: str) -> None:
    image = log_with().image
    refused, taken = acl_manager.create(image, [binding(**wrong), binding()], tenure=TENURE)
    assert refused.result.error_code == errors_pb2.INVALID_REQUEST
    assert re.search(said, refused.result.error_message), refused.result.error_message
    assert refused.operation is None
    assert taken.operation is not None


def test_an_entry_that_is_there_needs_no_write() -> None:
    image = log_with(acl("User:alice", Op.READ, TOPIC, "orders")).image
    there, other = acl_manager.create(image, [binding(), binding(host="1.1.1.1")], tenure=TENURE)
    assert (there.result.error_code, there.operation) == (0, None)
    assert other.operation is not None


LITERAL = acl("User:alice", Op.READ, TOPIC, "orders")
LITERAL_DENY = acl("User:alice", Op.READ, TOPIC, "orders", deny=True)
OTHER = acl("User:alice", Op.READ, TOPIC, "order")
PREFIXED = acl("User:bob", Op.WRITE, TOPIC, "ord", prefixed=True)
LONGER = acl("User:bob", Op.WRITE, TOPIC, "orders-", prefixed=True)
STAR = acl("User:alice", Op.ALL, TOPIC, "*", host="1.1.1.1")
GROUPED = acl("User:alice", Op.READ, GROUP, "orders")
ALL = (LITERAL, LITERAL_DENY, OTHER, PREFIXED, LONGER, STAR, GROUPED)


def wanted(**changed: Any) -> admin_pb2.AclFilter:  # noqa: ANN401 - any field's
    anything = {"resource_type": 1, "pattern_type": 1, "operation": 1, "permission_type": 1}
    return admin_pb2.AclFilter(**{**anything, **changed})


@pytest.mark.parametrize(
    ("meant", "found"),
    [
        (wanted(), ALL),
        (wanted(resource_type=3), (GROUPED,)),
        (wanted(resource_name="orders"), (LITERAL, LITERAL_DENY, GROUPED)),
        (wanted(resource_type=2, pattern_type=3, resource_name="*"), (STAR,)),
        (wanted(resource_type=2, pattern_type=3), (LITERAL, LITERAL_DENY, OTHER, STAR)),
        (wanted(pattern_type=4), (PREFIXED, LONGER)),
        (wanted(pattern_type=4, resource_name="orders"), ()),
        (
            wanted(resource_type=2, pattern_type=2, resource_name="orders"),
            (LITERAL, LITERAL_DENY, PREFIXED, STAR),
        ),
        (wanted(pattern_type=2), ALL),
        (wanted(principal="User:bob"), (PREFIXED, LONGER)),
        (wanted(host="1.1.1.1"), (STAR,)),
        (wanted(operation=2), (STAR,)),
        (wanted(permission_type=2), (LITERAL_DENY,)),
        (wanted(principal="User:carol"), ()),
    ],
)
def test_a_filter_means_what_it_says(
    meant: admin_pb2.AclFilter, found: tuple[Binding, ...]
) -> None:
    ((deletion,),) = acl_manager.delete(log_with(*ALL).image, [meant], tenure=TENURE)
    gone = {from_proto(one) for one in deletion.result.deleted}
    assert gone == set(found)
    records = deletion.operation.records if deletion.operation else ()
    assert len(records) == len(found)
    assert all(isinstance(record, AclRemoved) for record in records)


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type": 0},
        {"resource_type": 9},
        {"pattern_type": 0},
        {"pattern_type": 5},
        {"operation": 0},
        {"operation": 99},
        {"permission_type": 0},
        {"permission_type": 4},
    ],
)
def test_a_filter_of_unknown_numbers_is_refused(wrong: dict[str, int]) -> None:
    image = log_with(*ALL).image
    ((refused,), (taken,)) = acl_manager.delete(image, [wanted(**wrong), wanted()], tenure=TENURE)
    assert refused.result.error_code == errors_pb2.INVALID_REQUEST
    assert str(next(iter(wrong.values()))) in refused.result.error_message
    assert refused.operation is None
    assert len(taken.result.deleted) == len(ALL)


def test_many_removals_are_written_in_parts_that_share_a_result() -> None:
    many = [acl(f"User:{number}", Op.READ, TOPIC, "t") for number in range(1_201)]
    (parts,) = acl_manager.delete(log_with(*many).image, [wanted()], tenure=TENURE)
    assert [len(part.operation.records) for part in parts if part.operation] == [500, 500, 201]
    assert all(part.result is parts[0].result for part in parts)
    assert len(parts[0].result.deleted) == 1_201
