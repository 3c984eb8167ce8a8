"""Every Kafka API without the right, with it, with a deny, and as super user (F5).

An API without a row fails here: add one to ``tests/support/authorization_rows.py``.
"""

import asyncio
import dataclasses
import logging
import re
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from quorate.broker.changes.authorization import GUARDS, authorize
from quorate.broker.changes.table import CHANGES, A, Change, Q
from quorate.broker.common.errors import KafkaError
from quorate.broker.config.authorizer import STANDARD_AUTHORIZER
from quorate.broker.config.dynamic_config import LiveConfiguration
from quorate.broker.config.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from quorate.broker.kafka.admin.config_description import ConfigReads
from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.wire import codec
from quorate.broker.kafka.wire.primitives import Cursor
from quorate.broker.security.authorizer import Authorizer, caller_of
from quorate.broker.security.principal import KafkaPrincipal
from quorate.common.acl_types import AclPermission
from quorate.common.types import Endpoint
from quorate_proto.v1 import errors_pb2
from tests.support.acls import Binding, acl, log_with
from tests.support.authorization_rows import (
    CLUSTER_DENIED,
    OPEN,
    ROWS,
    TOPIC,
    TOPIC_DENIED,
    TRANSACTION_DENIED,
    WHO,
    Row,
)
from tests.support.followers import ShownImage
from tests.support.kafka_fakes import BROKER, FakeBroker, FakeBrokerInside, fake_broker
from tests.support.kafka_wire import by_topic_ids, read_answer, request_body

ALICE = KafkaPrincipal("alice")
HOST = "10.0.0.7"
OTHERS = acl("User:bob", 2, 2, "*")  # type: ignore[arg-type]
"""So that there are entries at all."""

MATRIX = [
    pytest.param(key, row, id=f"{key}-{number}")
    for key, rows in ROWS.items()
    for number, row in enumerate(rows)
]


class GuardedForwarder:
    """The fake controller behind the door that real ones have."""

    def __init__(self, inside: FakeBrokerInside) -> None:
        self._fake = inside.forwarder
        self.services = inside.services

    async def forward(
        self, change: Change[Q, A], request: Q, *, api_version: int | None = None
    ) -> A:
        rights = self.services.authorizer.rights_of(caller_of(request.context))
        image = self.services.images.image
        permission = authorize(change, request, rights, image)
        if permission.request is None:
            return permission.complete(change.answer())
        return permission.complete(await self._fake.forward(change, permission.request))


class Asked:
    """One broker, asked by alice: error codes of an answer, and whether anything was done."""

    def __init__(self, tmp_path: Path, *bindings: Binding, super_users: str = "") -> None:
        log = log_with(OTHERS, *bindings)
        self.inside = fake_broker(
            tmp_path,
            image=lambda: log.image,
            **{"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": super_users},
        )
        inside = self.inside
        inside.metadata.brokers[BROKER] = FakeBroker(
            Endpoint("127.0.0.1", 9092), Endpoint("127.0.0.1", 9192)
        )
        inside.metadata.add_topic(TOPIC)
        inside.metadata.add_topic(OFFSETS_TOPIC)
        inside.metadata.add_topic(TRANSACTIONS_TOPIC)
        forwarder: Any = GuardedForwarder(inside)
        config: Any = inside.services.config
        live = LiveConfiguration(ShownImage(lambda: log.image), config, BROKER)
        self.services = dataclasses.replace(
            inside.services,
            forwarder=forwarder,
            configs=ConfigReads(ShownImage(lambda: log.image), live, inside.services.authorizer),
        )
        self._before = self._done()

    def _done(self) -> object:
        producer_ids: Any = self.inside.services.producer_ids
        return (
            {rpc: len(asked) for rpc, asked in self.inside.forwarder.asked.items()},
            len(self.inside.replicas.produced),
            sum(len(wants) for wants, _ in self.inside.replicas.asked_to_delete),
            len(self.inside.replicas.markers),
            producer_ids.next,
        )

    @property
    def nothing_was_done(self) -> bool:
        return self._done() == self._before

    async def codes(self, key: int, row: Row) -> set[int]:
        api = api_table()[key]
        while self.services.groups.is_loading or self.services.transactions.is_loading:
            await asyncio.sleep(0)
        known = self.inside.metadata.topics
        ids = {name: UUID(bytes=topic.topic_id) for name, topic in known.items()}
        request = by_topic_ids(row.request, ids)
        raw = memoryview(bytearray(request_body(key, row.version, request)))
        body = api.decode_body(row.version, Cursor(raw))
        context = RequestContext(row.version, "client", HOST, ALICE)
        try:
            answer = b"".join(
                api.encode_body(context.version, await api.handle(self.services, context, body))
            )
        except KafkaError as error:
            assert codec.response_has_error_code(api.name, row.version)
            return {error.code}
        _, response = read_answer_body(key, row.version, answer)
        return set(error_codes(response))


def read_answer_body(key: int, version: int, body: bytes) -> tuple[int, Any]:
    for header in (b"\0\0\0\0\0", b"\0\0\0\0"):
        try:
            return read_answer(key, version, header + body)
        except Exception as error:  # noqa: BLE001 - the other header then
            failure = error
    raise failure


def error_codes(message: Any) -> Iterator[int]:  # noqa: ANN401 - any part of any response
    """All error codes in a response."""
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if field.metadata.get("kafka_type") == "error_code":
            yield value.value if isinstance(value, IntEnum) else int(value)
        for item in value if isinstance(value, tuple) else ():
            if dataclasses.is_dataclass(item):
                yield from error_codes(item)


def denied(binding: Binding) -> Binding:
    pattern, entry = binding
    return pattern, entry._replace(permission=AclPermission.DENY)


def test_every_api_has_a_row() -> None:
    served = set(api_table())
    assert served - set(ROWS) - set(OPEN) == set(), "APIs without a row in authorization_rows.py"
    assert (set(ROWS) | set(OPEN)) - served == set(), "rows without an API"
    assert not set(ROWS) & set(OPEN)


def test_every_change_has_a_guard() -> None:
    assert set(GUARDS) == {change.rpc for change in CHANGES}


@pytest.mark.parametrize(("key", "row"), MATRIX)
async def test_f5_without_the_right_it_is_refused_and_changes_nothing(
    tmp_path: Path, key: int, row: Row, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Asked(tmp_path, *row.also)
    with caplog.at_level(logging.INFO, logger="quorate.broker.security.authorizer"):
        assert row.denied in await asked.codes(key, row)
    assert asked.nothing_was_done
    wanted = {entry.operation.name for _, entry in row.needs}  # type: ignore[attr-defined]
    lines = [
        re.fullmatch(
            r"Principal = (\S+) is Denied Operation = (\S+) from host = (\S+) on resource = (\S+)",
            line,
        )
        for line in caplog.messages
    ]
    assert any(
        line and (line[1], line[3]) == (WHO, HOST) and line[2] in wanted for line in lines
    ), caplog.messages


WITHOUT_SCHEMA = {(0, 0), (0, 1), (0, 2), (44, 2)}
"""Versions that kio does not know: it cannot write such a request."""

WITHOUT_THAT_REFUSAL = {
    **{(24, version, CLUSTER_DENIED): "clients add to their own" for version in range(4)},
    (24, 4, TRANSACTION_DENIED): "brokers add to the transactions of their clients",
    (24, 5, TRANSACTION_DENIED): "as version 4",
    (24, 4, TOPIC_DENIED): "as for the transaction",
    (24, 5, TOPIC_DENIED): "as version 4",
    (10, 0, TRANSACTION_DENIED): "FindCoordinator finds groups alone",
    (35, 1, CLUSTER_DENIED): "DescribeLogDirs has no code for it: it tells nothing",
    (35, 2, CLUSTER_DENIED): "as version 1",
    (38, 1, errors_pb2.DELEGATION_TOKEN_AUTHORIZATION_FAILED): "tokens are for their client alone",
    (38, 2, errors_pb2.DELEGATION_TOKEN_AUTHORIZATION_FAILED): "as version 1",
}
"""API, version and code, and why that version does not have the code."""


@pytest.mark.parametrize(("key", "row"), MATRIX)
async def test_f5_it_is_refused_in_every_version(tmp_path: Path, key: int, row: Row) -> None:
    asked = Asked(tmp_path, *row.also)
    api = api_table()[key]
    for version in range(api.min_version, api.max_version + 1):
        has_it = (key, version, row.denied) not in WITHOUT_THAT_REFUSAL
        if has_it and (key, version) not in WITHOUT_SCHEMA:
            codes = await asked.codes(key, dataclasses.replace(row, version=version))
            assert row.denied in codes, version
    assert asked.nothing_was_done


@pytest.mark.parametrize(("key", "row"), MATRIX)
async def test_f5_any_entry_that_gives_the_right_is_enough(
    tmp_path: Path, key: int, row: Row
) -> None:
    for binding in row.needs:
        asked = Asked(tmp_path, binding, *row.also)
        assert row.denied not in await asked.codes(key, row), binding


@pytest.mark.parametrize(("key", "row"), MATRIX)
async def test_f5_a_deny_goes_over_it(tmp_path: Path, key: int, row: Row) -> None:
    for binding in row.needs:
        asked = Asked(tmp_path, binding, denied(binding), *row.also)
        if implied_otherwise(binding, row):
            continue
        assert row.denied in await asked.codes(key, row), binding
        assert asked.nothing_was_done


def implied_otherwise(binding: Binding, row: Row) -> bool:
    """A deny of what implies the right is no deny of the right."""
    first = row.needs[0]
    return binding[0] == first[0] and binding[1].operation != first[1].operation


@pytest.mark.parametrize(("key", "row"), MATRIX)
async def test_f5_somebody_elses_right_is_none_and_a_super_user_needs_none(
    tmp_path: Path, key: int, row: Row
) -> None:
    for pattern, entry in row.needs:
        others = (pattern, entry._replace(principal="User:bob"))
        elsewhere = (pattern, entry._replace(host="10.0.0.8"))
        asked = Asked(tmp_path, others, elsewhere, *row.also)
        assert row.denied in await asked.codes(key, row)
    asked = Asked(tmp_path, *map(denied, row.needs), super_users=f"User:root;{WHO}")
    assert row.denied not in await asked.codes(key, row)
    assert isinstance(asked.inside.services.authorizer, Authorizer)
