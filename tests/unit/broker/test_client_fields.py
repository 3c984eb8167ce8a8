"""What a client may say over gRPC: every field of its port is a client's or a broker's."""

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from quorate.broker.security import client_fields
from quorate.broker.security.client_fields import (
    BROKER_FIELDS,
    CLIENT_FIELDS,
    clear_what_clients_may_not_say,
)
from quorate.broker.security.client_guard import BROKERS_ONLY, stamp
from quorate.broker.security.principal import ANONYMOUS
from quorate_proto.v1 import admin_pb2, control_pb2
from tests.support.grpc_services import CLIENT_SERVICES


def messages_of_clients() -> Iterator[Descriptor]:
    """Every message that a client sends, and those in them."""
    waiting = [
        method.input_type
        for service in CLIENT_SERVICES
        for method in service.methods
        if f"/{service.full_name}/{method.name}" not in BROKERS_ONLY
    ]
    seen = set()
    while waiting:
        kind = waiting.pop()
        if kind.full_name in seen or kind.GetOptions().map_entry:
            continue
        seen.add(kind.full_name)
        yield kind
        waiting += [field.message_type for field in kind.fields if field.message_type is not None]


def test_f5_every_field_is_a_clients_or_a_brokers() -> None:
    """Who adds a field says here whose it is; until then it is cleared."""
    for kind in messages_of_clients():
        name = kind.full_name.removeprefix("quorate.v1.")
        clients = set(CLIENT_FIELDS.get(name, "").split())
        brokers = set(BROKER_FIELDS.get(name, "").split())
        assert not clients & brokers, name
        assert clients | brokers == {field.name for field in kind.fields}, name


def test_no_message_is_listed_that_clients_do_not_send() -> None:
    names = {kind.full_name.removeprefix("quorate.v1.") for kind in messages_of_clients()}
    assert set(CLIENT_FIELDS) == names


def test_the_messages_of_streams_have_no_field_of_brokers() -> None:
    for service in CLIENT_SERVICES:
        for method in service.methods:
            if method.client_streaming:
                waiting = [method.input_type]
                for kind in waiting:
                    name = kind.full_name.removeprefix("quorate.v1.")
                    assert name not in BROKER_FIELDS
                    assert {field.name for field in kind.fields} == set(CLIENT_FIELDS[name].split())
                    waiting += [one.message_type for one in kind.fields if one.message_type]


def test_f5_a_field_that_nobody_listed_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if somebody had added ``validate_only`` and ``NewTopic.configs``, and told nobody."""
    listed = {
        **CLIENT_FIELDS,
        "CreateTopicsRequest": "context topics",
        "NewTopic": "name num_partitions replication_factor assignments",
    }
    monkeypatch.setattr(client_fields, "CLIENT_FIELDS", listed)
    client_fields._clearing.cache_clear()
    topic = admin_pb2.NewTopic(name="t", configs={"a": "b"}, num_partitions=3)
    request = admin_pb2.CreateTopicsRequest(topics=[topic, topic], validate_only=True)
    request.context.client_id = "c"
    request.context.controller_epoch = 7
    try:
        clear_what_clients_may_not_say(request)
    finally:
        client_fields._clearing.cache_clear()
    kept = admin_pb2.NewTopic(name="t", num_partitions=3)
    context = admin_pb2.RequestContext(client_id="c")
    assert request == admin_pb2.CreateTopicsRequest(topics=[kept, kept], context=context)


def test_f5_a_message_that_nobody_listed_is_emptied() -> None:
    request = control_pb2.UpdateMetadataRequest(full=True, removed_topics=["t"])
    clear_what_clients_may_not_say(request)
    assert request == control_pb2.UpdateMetadataRequest()


def test_f5_fields_of_a_later_version_are_not_passed_on() -> None:
    later = admin_pb2.DeleteTopicsRequest(names=["t"]).SerializeToString() + b"\xf8\x7f\x01"
    request = admin_pb2.DeleteTopicsRequest.FromString(later)
    assert request.SerializeToString() == later, "protobuf keeps what it does not know"
    stamp(request, ANONYMOUS, "h")
    assert b"\xf8\x7f\x01" not in request.SerializeToString()


@pytest.mark.parametrize("service", CLIENT_SERVICES, ids=lambda service: service.name)
def test_f5_each_request_keeps_what_a_client_may_say(service: ServiceDescriptor) -> None:
    for method in service.methods:
        request: Any = GetMessageClass(method.input_type)()
        for field in method.input_type.fields:
            if field.type == field.TYPE_STRING and not field.is_repeated:
                setattr(request, field.name, "said")
        before = request.SerializeToString()
        stamp(request, ANONYMOUS, "h")
        if "context" in method.input_type.fields_by_name:
            assert request.context.forwarded_by == -1
            request.ClearField("context")
        if method.name != "AllocateProducerIds":
            assert request.SerializeToString() == before
