"""Admin requests over the Kafka wire at the price of their bytes: no client library is measured."""

import asyncio
import struct
from typing import Final

from tests.support.raw_client import frame, string

INCREMENTAL_ALTER_CONFIGS, CREATE_ACLS, DESCRIBE_CONFIGS = 44, 30, 32
ALTER_VERSION, ACLS_VERSION, DESCRIBE_VERSION = 0, 1, 1

_TOPIC: Final = 2
_SET: Final = 0
_LITERAL: Final = 3
_READ: Final = 3
_ALLOW: Final = 3


class Refused(Exception):
    """A change was not carried out; has Kafka's error code and message."""


class AdminWire:
    """One connection to one broker; one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    @classmethod
    async def connect(cls, address: str) -> "AdminWire":
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def close(self) -> None:
        self._writer.close()

    async def set_topic_config(self, topic: str, key: str, value: str) -> None:
        """IncrementalAlterConfigs of one key.

        Raises:
            Refused: by the controller, or for want of one.
        """
        change = struct.pack(">i", 1) + string(key) + struct.pack(">b", _SET) + string(value)
        resource = struct.pack(">ib", 1, _TOPIC) + string(topic) + change
        answer = await self._call(INCREMENTAL_ALTER_CONFIGS, ALTER_VERSION, resource + b"\0")
        _check_first(answer)

    async def allow_read(self, topic: str, user: str) -> None:
        """CreateAcls of one entry. Raises as ``set_topic_config``."""
        entry = b"".join(
            (
                struct.pack(">ib", 1, _TOPIC),
                string(topic),
                struct.pack(">b", _LITERAL),
                string(f"User:{user}"),
                string("*"),
                struct.pack(">bb", _READ, _ALLOW),
            )
        )
        _check_first(await self._call(CREATE_ACLS, ACLS_VERSION, entry))

    async def topic_config(self, topic: str, key: str) -> str:
        """DescribeConfigs of one key: the value in force at this broker."""
        names = struct.pack(">i", 1) + string(key)
        resource = struct.pack(">ib", 1, _TOPIC) + string(topic) + names
        return parse_value(await self._call(DESCRIBE_CONFIGS, DESCRIBE_VERSION, resource + b"\0"))

    async def _call(self, api_key: int, version: int, body: bytes) -> bytes:
        self._correlation_id += 1
        header = struct.pack(">hhi", api_key, version, self._correlation_id) + string("bench")
        self._writer.write(frame(header + body))
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return (await self._reader.readexactly(size))[4:]


def parse_value(answer: bytes) -> str:
    """The one value in a DescribeConfigs v1 answer about one key of one entity."""
    _check_first(answer)
    _, at = _text(answer, 10)
    _, at = _text(answer, at + 1)
    (count,) = struct.unpack_from(">i", answer, at)
    if count != 1:
        raise Refused(f"{count} keys are described where one was asked for")
    _, at = _text(answer, at + 4)
    return _text(answer, at)[0]


def _check_first(answer: bytes) -> None:
    """Raise ``Refused`` unless the answer has one outcome, with error code 0, behind the throttle
    time."""
    _, count, code = struct.unpack_from(">iih", answer)
    if count != 1 or code:
        raise Refused(f"{count} outcomes, error code {code}: {_text(answer, 10)[0]}")


def _text(answer: bytes, at: int) -> tuple[str, int]:
    """A nullable string, and where it ends."""
    (length,) = struct.unpack_from(">h", answer, at)
    end = at + 2 + max(0, length)
    return answer[at + 2 : end].decode(), end
