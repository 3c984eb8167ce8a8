"""The one table of changes: complete, and of one mind with the proto file."""

from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from quorate.broker.changes.table import CHANGES, Change
from quorate_proto.v1 import admin_pb2, errors_pb2

METHODS = admin_pb2.DESCRIPTOR.services_by_name["Admin"].methods_by_name

OWN = {"ClusterStatus", "ResignController", "MoveController"}
"""Methods about the answering broker itself."""

OF_COORDINATORS = {"ListTransactions", "AbortTransaction"}
"""Methods that the broker answers which coordinates the transactions in question."""

KEYS_OF_THE_DOCUMENT = {
    "AlterConfigs": (33, 2),
    "IncrementalAlterConfigs": (44, 2),
    "CreateAcls": (30, 3),
    "DeleteAcls": (31, 3),
    "AlterClientQuotas": (49, 1),
    "CreateDelegationToken": (38, 3),
    "RenewDelegationToken": (39, 3),
    "ExpireDelegationToken": (40, 3),
}
"""API key and the version that the document gives to the controller alone (F1)."""

NOT_TAKEN_UPSTREAM = {"IncrementalAlterConfigs", "RenewDelegationToken", "ExpireDelegationToken"}


def test_every_method_is_a_change_or_a_read() -> None:
    changes = {change.rpc for change in CHANGES}
    assert len(changes) == len(CHANGES)
    reads = {name for name in METHODS if name.startswith("Describe")} | {"ListConfigEntities"}
    assert set(METHODS) == changes | reads | OWN | OF_COORDINATORS


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.rpc)
def test_a_change_has_the_messages_of_its_method(change: Change[Any, Any]) -> None:
    method = METHODS[change.rpc]
    assert change.request.DESCRIPTOR is method.input_type
    assert change.answer.DESCRIPTOR is method.output_type
    assert change.method == f"/quorate.v1.Admin/{change.rpc}"


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.rpc)
def test_f6_a_failure_names_each_item(change: Change[Any, Any]) -> None:
    """Two items of each kind in, a result with the code for each of them out."""
    request = change.request()
    items = [one for one in request.DESCRIPTOR.fields if one.is_repeated]
    items = [one for one in items if one.name != "renewers"]
    for field in items:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            first, second = getattr(request, field.name).add(), getattr(request, field.name).add()
            for message, name in ((first, f"{field.name} a"), (second, f"{field.name} b")):
                named = {"name", "topic", "entity_name", "user"} & set(_texts(message))
                for key in named:
                    setattr(message, key, name)
                if change.rpc == "ElectLeaders":
                    message.partitions.append(7)
        else:
            value = [b"a", b"b"] if field.type == FieldDescriptor.TYPE_BYTES else ["a", "b"]
            getattr(request, field.name).extend(value)
    answer = change.failed(request, errors_pb2.REQUEST_TIMED_OUT, "too late")
    results = [
        result
        for field in answer.DESCRIPTOR.fields
        if field.is_repeated
        for result in getattr(answer, field.name)
    ]
    if change.rpc == "ListPartitionReassignments" or not items:
        assert answer.error_code == errors_pb2.REQUEST_TIMED_OUT
        return
    assert len(results) == 2 * len(items)
    assert {one.error_code for one in results} == {errors_pb2.REQUEST_TIMED_OUT}
    assert {one.error_message for one in results} == {"too late"}
    assert len({one.SerializeToString() for one in results}) in (len(results), 1), "named, or bare"


def _texts(message: Any) -> list[str]:  # noqa: ANN401 - any message
    return [one.name for one in message.DESCRIPTOR.fields if one.type == one.TYPE_STRING]


def test_f1_the_documents_versions_are_the_controllers_alone_where_upstream_left_them_free() -> (
    None
):
    by_rpc = {change.rpc: change for change in CHANGES}
    for rpc, (key, bumped) in KEYS_OF_THE_DOCUMENT.items():
        change = by_rpc[rpc]
        assert change.key == key
        assert (bumped in change.controller_only) is (rpc in NOT_TAKEN_UPSTREAM)
        assert (bumped in change.proxied) is (rpc not in NOT_TAKEN_UPSTREAM)
        assert not set(change.proxied) & set(change.controller_only)
    others = [change for change in CHANGES if change.rpc not in KEYS_OF_THE_DOCUMENT]
    assert not any(change.controller_only for change in others)
