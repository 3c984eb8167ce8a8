"""Administers share groups over the Kafka protocol (KIP-932).

librdkafka does not know these requests (``kafka_request``). Each is sent to the broker that
coordinates the group, and again while no broker does.
"""

import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from quorate.client.bootstrap import Reader, ask_any, discover, encode_kafka_request, kafka_string
from quorate.client.errors import ClusterUnreachable, RequestFailed
from quorate.client.kafka_request import (
    NO_TAGS,
    array,
    ask_flexible,
    check,
    int64,
    items_of,
    text,
)
from quorate.client.security import ClientSecurity
from quorate.common.types import ID_BYTES
from quorate_proto.v1 import errors_pb2

T = TypeVar("T")
Partition = tuple[str, int]
"""A topic, and the number of a partition."""

_FIND_COORDINATOR: Final = 10
_LIST_GROUPS: Final = 16
_DELETE_GROUPS: Final = 42
_DESCRIBE: Final = 77
_DESCRIBE_OFFSETS: Final = 90
_ALTER_OFFSETS: Final = 91
_UNKNOWN: Final = -1
_PAUSE_S: Final = 0.2
_AGAIN: Final = frozenset(
    {
        errors_pb2.NOT_COORDINATOR,
        errors_pb2.COORDINATOR_NOT_AVAILABLE,
        errors_pb2.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember:
    """A member of a share group, and the partitions that it fetches."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroup:
    """A share group as its coordinator describes it; ``state`` is in small letters."""

    name: str
    state: str
    assignor: str
    members: tuple[ShareMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOffset:
    """How far a group is in a partition.

    ``start`` is the first offset that is neither accepted nor rejected, ``lag`` the number of such
    records. Both are None while nobody knows.
    """

    topic: str
    partition: int
    start: int | None
    lag: int | None


class ShareGroups:
    """The share groups of a cluster."""

    def __init__(self, bootstrap_servers: str, security: ClientSecurity, timeout_ms: int) -> None:
        self._bootstrap = bootstrap_servers
        self._security = security
        self._timeout_ms = timeout_ms

    def all(self) -> list[tuple[str, str]]:
        """Return the name and the state of each share group.

        Raises:
            RequestFailed: a broker refuses.
            BootstrapError, LoginFailed: no broker answers, or lets the user in.
        """
        cluster = discover(self._bootstrap, timeout_ms=self._timeout_ms, security=self._security)
        body = array([]) + array([text("share")]) + NO_TAGS
        found: set[tuple[str, str]] = set()
        for broker in cluster.brokers:
            found.update(self._ask(broker.kafka, (_LIST_GROUPS, 5), body, _read_list))
        return sorted(found)

    def describe(self, group_id: str) -> ShareGroup:
        """Describe one group.

        Raises:
            RequestFailed: there is no such group, or the user may not see it.
        """
        body = array([text(group_id)]) + b"\0" + NO_TAGS
        return self._ask_coordinator(group_id, (_DESCRIBE, 1), body, _read_described)

    def offsets(self, group_id: str) -> list[ShareOffset]:
        """Return how far a group is, in every partition that it has begun with.

        Raises:
            RequestFailed: as ``describe``.
        """
        body = array([text(group_id) + b"\0" + NO_TAGS]) + NO_TAGS
        return self._ask_coordinator(group_id, (_DESCRIBE_OFFSETS, 1), body, _read_offsets)

    def set_offsets(self, group_id: str, offsets: Mapping[Partition, int]) -> None:
        """Have a group without members begin at these offsets.

        Raises:
            RequestFailed: the group has members, or a partition is refused.
        """
        topics: dict[str, list[bytes]] = {}
        for (topic, number), offset in offsets.items():
            topics.setdefault(topic, []).append(struct.pack(">iq", number, offset) + NO_TAGS)
        named = [text(topic) + array(some) + NO_TAGS for topic, some in topics.items()]
        body = text(group_id) + array(named) + NO_TAGS
        self._ask_coordinator(group_id, (_ALTER_OFFSETS, 0), body, _read_altered)

    def delete(self, group_id: str) -> None:
        """Delete a group without members, and all that is known of its records.

        Raises:
            RequestFailed: the group has members, or does not exist.
        """
        body = array([text(group_id)]) + NO_TAGS
        self._ask_coordinator(group_id, (_DELETE_GROUPS, 2), body, _read_deleted)

    # -- asking ----------------------------------------------------------------------------------

    def _ask_coordinator(
        self, group_id: str, api: tuple[int, int], body: bytes, read: Callable[[Reader], T]
    ) -> T:
        deadline = time.monotonic() + self._timeout_ms / 1000
        while True:
            try:
                return self._ask(self._coordinator(group_id), api, body, read)
            except RequestFailed as error:
                if error.code not in _AGAIN:
                    raise
                if time.monotonic() >= deadline:
                    raise ClusterUnreachable(
                        f"share group {group_id!r} has no coordinator: {error}"
                    ) from error
                time.sleep(_PAUSE_S)

    def _coordinator(self, group_id: str) -> str:
        request = encode_kafka_request(
            _FIND_COORDINATOR, 1, kafka_string(group_id.encode()) + b"\0"
        )
        return ask_any(
            self._bootstrap,
            request,
            _read_coordinator,
            timeout_ms=self._timeout_ms,
            security=self._security,
        )

    def _ask(
        self, address: str, api: tuple[int, int], body: bytes, read: Callable[[Reader], T]
    ) -> T:
        return ask_flexible(
            address, api, body, read, timeout_ms=self._timeout_ms, security=self._security
        )


# -- the wire --------------------------------------------------------------------------------------


def _read_coordinator(frame: bytes) -> str:
    reader = Reader(frame)
    reader.int32()
    reader.int32()
    code, message = reader.int16(), _old_text(reader)
    check(code, message)
    reader.int32()
    return f"{_old_text(reader)}:{reader.int32()}"


def _old_text(reader: Reader) -> str:
    return reader.take(max(0, reader.int16())).decode("utf-8", "replace")


def _read_list(reader: Reader) -> list[tuple[str, str]]:
    check(reader.int16(), "listing groups")
    found = []
    for _ in items_of(reader):
        name, _, state, _ = (reader.string() for _ in range(4))
        found.append((name, state.lower()))
    return found


def _read_described(reader: Reader) -> ShareGroup:
    (described,) = [_read_group(reader) for _ in items_of(reader)]
    return described


def _read_group(reader: Reader) -> ShareGroup:
    code, message = reader.int16(), reader.string()
    name, state = reader.string(), reader.string()
    reader.take(8)
    assignor = reader.string()
    members = tuple(_read_member(reader) for _ in items_of(reader))
    reader.int32()
    check(code, message)
    return ShareGroup(name=name, state=state.lower(), assignor=assignor, members=members)


def _read_member(reader: Reader) -> ShareMember:
    member_id, _, _ = reader.string(), reader.string(), reader.int32()
    client_id, host = reader.string(), reader.string()
    for _ in range(reader.unsigned_varint() - 1):
        reader.string()
    partitions: list[Partition] = []
    for _ in items_of(reader):
        reader.take(ID_BYTES)
        topic = reader.string()
        partitions += [(topic, reader.int32()) for _ in range(reader.unsigned_varint() - 1)]
    reader.tags()
    return ShareMember(
        member_id=member_id, client_id=client_id, host=host, partitions=tuple(sorted(partitions))
    )


def _read_offsets(reader: Reader) -> list[ShareOffset]:
    found: list[ShareOffset] = []
    for _ in items_of(reader):
        reader.string()
        for _ in items_of(reader):
            topic = reader.string()
            reader.take(ID_BYTES)
            found += [_read_offset(topic, reader) for _ in items_of(reader)]
        check(reader.int16(), reader.string())
    return sorted(found, key=lambda one: (one.topic, one.partition))


def _read_offset(topic: str, reader: Reader) -> ShareOffset:
    partition, start = reader.int32(), int64(reader)
    reader.int32()
    lag = int64(reader)
    code, _ = reader.int16(), reader.string()
    return ShareOffset(
        topic=topic,
        partition=partition,
        start=None if code or start == _UNKNOWN else start,
        lag=None if code or lag == _UNKNOWN else lag,
    )


def _read_altered(reader: Reader) -> None:
    check(reader.int16(), reader.string())
    refused: list[tuple[int, str]] = []
    for _ in items_of(reader):
        topic = reader.string()
        reader.take(ID_BYTES)
        for _ in items_of(reader):
            partition, code, message = reader.int32(), reader.int16(), reader.string()
            if code:
                refused.append((code, f"{topic}-{partition}: {message}"))
    if refused:
        raise RequestFailed(refused[0][0], "; ".join(message for _, message in refused))


def _read_deleted(reader: Reader) -> None:
    for _ in items_of(reader):
        name, code = reader.string(), reader.int16()
        check(code, f"share group {name!r}")
