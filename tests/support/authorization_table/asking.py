"""Asks a broker for every cell of the table, each client over a connection of its own."""

import asyncio
import struct
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.serial.errors import OutOfBoundValue

from quorate.common.acl_types import AclOperation
from quorate.common.types import Endpoint
from tests.support.acls import Binding
from tests.support.authorization_rows import GROUP, NEW_TOPIC, TOPIC, TRANSACTIONAL_ID, Row, topic
from tests.support.authorization_table.columns import ANONYMOUS, USERS, entries_of
from tests.support.authorization_table.outcome import CLOSED, outcome_of
from tests.support.authorization_table.rows import TOPIC_ID, TitledRow
from tests.support.kafka_wire import Values, WireClient, by_topic_ids, read_answer
from tests.support.waiting import async_wait_until

ADMIN: Final = "admin"
"""A super user of both brokers."""

PROBE: Final = "probe"
"""May create a topic by the last entry of each row. Then the controller knows all entries."""

PASSWORDS: Final[Mapping[str, str]] = MappingProxyType(
    {user: f"{user}-secret" for user in (ADMIN, PROBE, *USERS)}
)
_METADATA, _HANDSHAKE, _AUTHENTICATE, _FIND_COORDINATOR = 3, 17, 36, 10
_CREATE_TOPICS, _DELETE_TOPICS, _DELETE_RECORDS, _OFFSET_COMMIT = 19, 20, 21, 8
_DESCRIBE_ACLS, _CREATE_ACLS, _DELETE_ACLS = 29, 30, 31
_API_VERSIONS, _DESCRIBE_CLUSTER = 18, 60
_CODE_BEHIND_THROTTLE_TIME: Final = struct.Struct(">4x1x4xh")
_MINUS_ONE: Final = b"\xff" * 8
_ANY: Final = 1
_NOT_YET: Final = frozenset(
    {
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "NOT_COORDINATOR",
        "CONCURRENT_TRANSACTIONS",
        "LEADER_NOT_AVAILABLE",
    }
)


class Addresses(NamedTuple):
    """The addresses of a broker: one for clients that say nothing of themselves, and one to log
    in."""

    plaintext: Endpoint
    sasl: Endpoint


@dataclass(frozen=True)
class _CodeAlone:
    """The error code of DescribeCluster, which is all the table has. Quorate adds a field that the
    reader does not know."""

    error_code: int

    @classmethod
    def of(cls, answer: bytes) -> "_CodeAlone":
        return cls(*_CODE_BEHIND_THROTTLE_TIME.unpack_from(answer))


def _read(key: int, version: int, answer: bytes) -> Any:  # noqa: ANN401 - a kio response
    if key == _DESCRIBE_CLUSTER:
        return _CodeAlone.of(answer)
    try:
        return read_answer(key, version, answer)[1]
    except OutOfBoundValue:
        # The reader refuses times of -1, which a token has that was not made.
        return read_answer(key, version, answer.replace(_MINUS_ONE, bytes(8)))[1]


class Clients:
    """The connections to one broker, by column."""

    def __init__(self, at: Addresses) -> None:
        self._at = at
        self._open: dict[str, WireClient] = {}

    async def ask(self, who: str, key: int, version: int, values: Values) -> Any:  # noqa: ANN401
        """Return the response, or None if the broker closes the connection instead."""
        if who not in self._open:
            self._open[who] = await self._connect(who)
        client = self._open[who]
        try:
            client.send(key, version, values)
            return _read(key, version, await client.answer())
        except (asyncio.IncompleteReadError, ConnectionError):
            await self._open.pop(who).close()
            return None

    async def versions(self) -> dict[int, tuple[int, int]]:
        """Return the first and the last version of each API that the broker serves."""
        answer = await self.ask(ADMIN, _API_VERSIONS, 2, {})
        return {int(one.api_key): (one.min_version, one.max_version) for one in answer.api_keys}

    async def close(self) -> None:
        for client in self._open.values():
            await client.close()

    async def _connect(self, who: str) -> WireClient:
        if who == ANONYMOUS:
            return await WireClient.connect(self._at.plaintext)
        client = await WireClient.connect(self._at.sasl)
        await client.ask(_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        token = f"\0{who}\0{PASSWORDS[who]}".encode()
        answer = await client.ask(_AUTHENTICATE, 2, {"auth_bytes": token})
        assert not answer.error_code, answer
        return client


class Table:
    """Makes what the rows are about, and asks row by row."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._topic_ids: dict[str, UUID] = {}

    async def observe(self, rows: Iterable[TitledRow]) -> dict[str, dict[str, str]]:
        """Return the outcome of every cell."""
        rows = list(rows)
        await self._prepare(rows)
        return {row.title: await self._row(number, row) for number, row in enumerate(rows)}

    async def _prepare(self, rows: list[TitledRow]) -> None:
        owned = [
            _own(number, column, TOPIC)
            for number, (_, _, row) in enumerate(rows)
            if row.own
            for column in entries_of(row)
        ]
        await self._create_topics([TOPIC, *owned])
        for key_type, name in ((0, GROUP), (1, TRANSACTIONAL_ID)):
            request = {"key_type": key_type, "coordinator_keys": [name]}
            await self._until_done(_FIND_COORDINATOR, 4, request)
        topic_id = urlsafe_b64encode(self._topic_ids[TOPIC].bytes).decode().rstrip("=")
        shared = {"key_type": 2, "coordinator_keys": [f"{GROUP}:{topic_id}:0"]}
        await self._until_done(_FIND_COORDINATOR, 6, shared)
        partition = {
            "partition_index": 0,
            "committed_offset": 0,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        commit = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": TOPIC, "partitions": [partition]}],
        }
        await self._until_done(_OFFSET_COMMIT, 8, commit)

    async def _create_topics(self, names: list[str]) -> None:
        request = _creating(names)
        created = await self._ask(_CREATE_TOPICS, 7, request)
        assert not any(topic.error_code for topic in created.topics), created
        asked = {
            "topics": [{"topic_id": None, "name": name} for name in names],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        metadata = await self._until_done(_METADATA, 12, asked)
        self._topic_ids = {topic.name: topic.topic_id for topic in metadata.topics}

    async def _row(self, number: int, titled: TitledRow) -> dict[str, str]:
        row = titled.row
        entries = {
            column: [_renamed_entry(one, number, column, row) for one in bindings]
            for column, bindings in entries_of(row).items()
        }
        await self._set_acls(f"probe-{number}", entries)
        return {column: await self._cell(number, column, titled) for column in entries}

    async def _cell(self, number: int, column: str, titled: TitledRow) -> str:
        key, title, row = titled
        names = _names(number, column, row)
        topic_id = self._topic_ids.get(names.get(TOPIC, TOPIC), UUID(int=9))
        renamed = _renamed(row.request, {**names, TOPIC_ID: topic_id})
        values = by_topic_ids(renamed, {names.get(TOPIC, TOPIC): topic_id})
        retried = _NOT_YET.union(row.retried)

        async def final_outcome() -> str | None:
            response = await self._clients.ask(column, key, row.version, values)
            outcome = CLOSED if response is None else outcome_of(response)
            return None if retried.intersection(outcome.replace(",", "").split()) else outcome

        outcome = await async_wait_until(final_outcome, f"{column}'s final answer to {title}")
        for name, own in names.items():
            outcome = outcome.replace(str(own), str(name))
        return outcome

    async def _set_acls(self, probe: str, entries: Mapping[str, list[Binding]]) -> None:
        """Have these entries, and no others, about the users of the table."""
        filters = [_filter(f"User:{user}") for user in (*USERS, PROBE)]
        await self._ask(_DELETE_ACLS, 3, {"filters": filters})
        creations = [
            _creation(user, binding) for user, bindings in entries.items() for binding in bindings
        ]
        count = len({tuple(one.values()) for one in creations})
        creations.append(_creation(PROBE, topic(AclOperation.CREATE, probe)))
        created = await self._ask(_CREATE_ACLS, 3, {"creations": creations})
        assert not any(one.error_code for one in created.results), created
        probing = _creating([probe], validate_only=True)

        async def are_known() -> bool:
            answer = await self._clients.ask(PROBE, _CREATE_TOPICS, 7, probing)
            return not answer.topics[0].error_code and await self._known_acls() == count

        await async_wait_until(are_known, f"{count} entries to be known")

    async def _known_acls(self) -> int:
        described = await self._ask(_DESCRIBE_ACLS, 3, _filter(None))
        known = (acl.principal for resource in described.resources for acl in resource.acls)
        return sum(principal.removeprefix("User:") in USERS for principal in known)

    async def _ask(self, key: int, version: int, values: Values) -> Any:  # noqa: ANN401 - any response
        return await self._clients.ask(ADMIN, key, version, values)

    async def _until_done(self, key: int, version: int, values: Values) -> Any:  # noqa: ANN401
        answer: Any = None

        async def is_done() -> bool:
            nonlocal answer
            answer = await self._ask(key, version, values)
            outcome = outcome_of(answer)
            return all(item.endswith(("NONE", "+brokers")) for item in outcome.split(", "))

        await async_wait_until(is_done, lambda: f"API {key} to be done: {answer}")
        return answer


def _filter(principal: str | None) -> Values:
    return {
        "resource_type_filter": _ANY,
        "resource_name_filter": None,
        "pattern_type_filter": _ANY,
        "principal_filter": principal,
        "host_filter": None,
        "operation": _ANY,
        "permission_type": _ANY,
    }


def _creating(names: list[str], *, validate_only: bool = False) -> Values:
    new = [
        {
            "name": name,
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        for name in names
    ]
    return {"topics": new, "timeout": 30_000, "validate_only": validate_only}


def _creation(user: str, binding: Binding) -> Values:
    pattern, entry = binding
    return {
        "resource_type": int(pattern.resource_type),
        "resource_name": pattern.name,
        "resource_pattern_type": int(pattern.pattern_type),
        "principal": f"User:{user}",
        "host": "*",
        "operation": int(entry.operation),
        "permission_type": int(entry.permission),
    }


def _own(number: int, column: str, name: str) -> str:
    return f"{name}.{number}.{column}"


def _names(number: int, column: str, row: Row) -> dict[Any, Any]:
    """Return names of the row's requests and entries → the names that this cell has instead."""
    names = (NEW_TOPIC, TOPIC, GROUP, TRANSACTIONAL_ID) if row.own else (NEW_TOPIC,)
    return {name: _own(number, column, name) for name in names}


def _renamed_entry(binding: Binding, number: int, column: str, row: Row) -> Binding:
    pattern, entry = binding
    names = _names(number, column, row)
    return pattern._replace(name=names.get(pattern.name, pattern.name)), entry


def _renamed(value: Any, names: Mapping[Any, Any]) -> Any:  # noqa: ANN401 - any part of a request
    if isinstance(value, dict):
        return {key: _renamed(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str | UUID) else value
