"""Kafka's wire as the other side sees it: kio writes the requests and reads the answers.

So that what the broker's own codec says is checked by another's.
"""

import asyncio
import dataclasses
import datetime
import io
import struct
import types
import typing
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from quorate.common.types import Endpoint

Values = dict[str, Any]


def request_body(key: int, version: int, values: Values) -> bytes:
    """A request body; ``values`` in kio's field names, times in ms, arrays as lists."""
    schema = load_request_schema(key, version)
    out = io.BytesIO()
    entity_writer(schema)(out, entity_of(schema, values))
    return out.getvalue()


def request_frame(
    key: int,
    version: int,
    values: Values | bytes,
    *,
    correlation_id: int = 7,
    client_id: str | None = "test",
) -> bytes:
    """A whole request without its size."""
    body = values if isinstance(values, bytes) else request_body(key, version, values)
    name = (
        b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id)) + client_id.encode()
    )
    tags = b"\0" if _is_flexible(key, version) else b""
    return struct.pack(">hhi", key, version, correlation_id) + name + tags + body


def sized(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def _is_flexible(key: int, version: int) -> bool:
    try:
        return bool(load_request_schema(key, version).__flexible__)
    except Exception:  # noqa: BLE001 - kio has no schema for versions Kafka has dropped
        return False


def read_answer(key: int, version: int, frame: bytes) -> tuple[int, Any]:
    """Correlation id and response of an answer without its size; nothing may be left over."""
    schema = load_response_schema(key, version)
    start = 4
    if schema.__header_schema__.__flexible__:
        assert frame[4] == 0
        start = 5
    response, size = entity_reader(schema)(frame, start)
    assert start + size == len(frame)
    return int.from_bytes(frame[:4], "big"), response


def entity_of(schema: Any, values: Values) -> Any:  # noqa: ANN401
    fields = {}
    for field in dataclasses.fields(schema):
        if field.name in values:
            fields[field.name] = _value(field, values[field.name])
    return schema(**fields)


def _value(field: Any, value: Any) -> Any:  # noqa: ANN401
    if field.metadata.get("kafka_type") in ("timedelta_i32", "timedelta_i64"):
        return datetime.timedelta(milliseconds=value)
    if isinstance(value, dict):
        (schema,) = (item for item in _parts(field.type) if dataclasses.is_dataclass(item))
        return entity_of(schema, value)
    if isinstance(value, list):
        nested = next((item for item in _parts(field.type) if dataclasses.is_dataclass(item)), None)
        return tuple(entity_of(nested, item) if nested else item for item in value)
    return value


def _parts(type_: Any) -> list[Any]:  # noqa: ANN401
    """All types named in an annotation: of ``tuple[Topic, ...] | None``, Topic too."""
    arguments = typing.get_args(type_)
    if isinstance(type_, types.GenericAlias | types.UnionType) or arguments:
        return [part for argument in arguments for part in _parts(argument)]
    return [type_]


def record_batch(
    count: int = 3,
    value: bytes = b"value",
    timestamp_ms: int = 1_000,
    *,
    transactional_producer_id: int | None = None,
) -> bytes:
    """A batch v2 as a producer sends it, base offset 0; made by aiokafka."""
    plain = transactional_producer_id is None
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0 if plain else 1,
        producer_id=-1 if plain else transactional_producer_id,
        producer_epoch=-1 if plain else 0,
        base_sequence=-1 if plain else 0,
        batch_size=64 << 20,
    )
    for offset in range(count):
        builder.append(offset, timestamp_ms + offset, None, value, [])
    return bytes(builder.build())


def producing(
    *records: bytes | None, acks: int = -1, transactional_id: str | None = None
) -> Values:
    """A Produce request to partitions 0, 1, … of topic t."""
    return {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": 1500,
        "topic_data": [
            {
                "name": "t",
                "partition_data": [
                    {"index": index, "records": data} for index, data in enumerate(records)
                ],
            }
        ],
    }


def fetching(
    offset: int = 0,
    *,
    partitions: tuple[int, ...] = (0,),
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    session: tuple[int, int] = (0, -1),
    forgotten: tuple[int, ...] = (),
    rack: str = "",
    replica_id: int = -1,
) -> Values:
    """A Fetch request for partitions of topic t."""
    return {
        "replica_id": replica_id,
        "max_wait": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation_level,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [
            {
                "topic": "t",
                "partitions": [
                    {
                        "partition": partition,
                        "current_leader_epoch": -1,
                        "fetch_offset": offset,
                        "last_fetched_epoch": -1,
                        "log_start_offset": -1,
                        "partition_max_bytes": 1 << 20,
                    }
                    for partition in partitions
                ],
            }
        ]
        if partitions
        else [],
        "forgotten_topics_data": [{"topic": "t", "partitions": list(forgotten)}]
        if forgotten
        else [],
        "rack_id": rack,
    }


def by_topic_ids(values: Values, ids: Mapping[str, UUID]) -> Values:
    """A request whose topics have ids beside their names, for the versions that name them so."""
    return {key: _with_ids(value, ids) for key, value in values.items()}


def _with_ids(value: Any, ids: Mapping[str, UUID]) -> Any:  # noqa: ANN401 - a field of a request
    if isinstance(value, list):
        return [_with_ids(item, ids) for item in value]
    if not isinstance(value, dict):
        return value
    name: Any = value.get("name") or value.get("topic")
    beside = {"topic_id": ids[name]} if name in ids and "topic_id" not in value else {}
    return {**by_topic_ids(value, ids), **beside}


class WireClient:
    """A raw connection: send what you like, read frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, at: Endpoint) -> "WireClient":
        return cls(*await asyncio.open_connection(at.host, at.port, limit=64 << 20))

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    def send(self, key: int, version: int, values: Values | bytes, correlation_id: int = 7) -> None:
        frame = request_frame(key, version, values, correlation_id=correlation_id)
        self._writer.write(sized(frame))

    async def answer(self) -> bytes:
        """The next answer, without its size.

        Raises:
            asyncio.IncompleteReadError: the broker closed the connection.
        """
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return await self._reader.readexactly(size)

    async def ask(self, key: int, version: int, values: Values | bytes) -> Any:  # noqa: ANN401
        """Sends a request and returns the response to it."""
        self.send(key, version, values)
        return read_answer(key, version, await self.answer())[1]

    async def is_closed(self) -> bool:
        """Waits for the end of what the broker sends; True if nothing came before it."""
        try:
            return await self._reader.read(1) == b""
        except ConnectionResetError:
            return True

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            return
