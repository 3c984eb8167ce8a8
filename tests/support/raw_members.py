"""Members of consumer groups of a few lines each: thousands of them in one process.

They speak old, plain versions of the protocol, each on a connection of its own, and do what a
client does: join, share partitions out if they lead, give signs of life, and join again when they
are told that the group rebalances.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from quorate_proto.v1 import errors_pb2
from tests.support.waiting import async_let_time_pass, async_wait_until

FETCH: Final = 1, 4
COMMIT: Final = 8, 6
FIND: Final = 10, 1
JOIN: Final = 11, 5
HEARTBEAT: Final = 12, 3
LEAVE: Final = 13, 1
SYNC: Final = 14, 3

_AGAIN: Final = frozenset(
    {
        errors_pb2.REBALANCE_IN_PROGRESS,
        errors_pb2.ILLEGAL_GENERATION,
        errors_pb2.COORDINATOR_LOAD_IN_PROGRESS,
        errors_pb2.COORDINATOR_NOT_AVAILABLE,
    }
)
COORDINATOR_MOVED: Final = frozenset(
    {
        errors_pb2.NOT_COORDINATOR,
        errors_pb2.COORDINATOR_NOT_AVAILABLE,
        errors_pb2.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Ask for it again, and there."""

_PAUSE_S: Final = 0.05

Assign = Callable[[Sequence[str]], dict[str, bytes]]
"""Member ids → what each of them gets."""


class GroupError(Exception):
    """A member was refused for good."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: {errors_pb2.ErrorCode.Name(code)}")  # type: ignore[arg-type]
        self.code = code


class Connection(asyncio.Protocol):
    """Requests are answered in their order; any number may be on their way."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, address: str) -> "Connection":
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(cls, host, int(port))
        return connection

    def call(self, api: tuple[int, int], body: bytes) -> "asyncio.Future[bytes]":
        """The answer's body, behind its correlation id.

        Raises:
            ConnectionResetError: the connection is closed.
        """
        assert self._transport is not None
        if self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        header = struct.pack(">ihhi6s", len(body) + 14, *api, 0, b"\0\4test")
        self._transport.write(header + body)
        return answer

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                return
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_result(bytes(self._received[8:end]))
            del self._received[:end]

    def connection_lost(self, error: Exception | None) -> None:
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(error or ConnectionResetError("closed by the broker"))


async def find_coordinator(bootstrap: str, group_id: str, patience_s: float = 30.0) -> str:
    """host:port of the group's coordinator.

    Raises:
        AssertionError: none was told in time.
    """
    connection = await Connection.open(bootstrap.partition(",")[0])

    async def told() -> str | None:
        answer = Reader(await connection.call(FIND, text(group_id) + b"\0"))
        answer.skip(4)
        code, _, _ = answer.int16(), answer.text(), answer.int32()
        return None if code else f"{answer.text()}:{answer.int32()}"

    address = await async_wait_until(told, f"the coordinator of {group_id}", timeout_s=patience_s)
    connection.close()
    return address


class Timeouts(NamedTuple):
    session_ms: int = 45_000
    rebalance_ms: int = 300_000
    heartbeat_s: float = 3.0


class RawMember:
    """One member, from ``join`` to ``leave``."""

    def __init__(
        self,
        connection: Connection,
        group_id: str,
        assign: Assign,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - immutable
    ) -> None:
        self._connection = connection
        self._group_id = text(group_id)
        self._assign = assign
        self._timeouts = timeouts
        self.member_id = ""
        self.generation_id = -1
        self.assignment = b""
        self.is_joining = False

    async def join(self) -> None:
        """Returns once it has its assignment of a generation.

        Raises:
            GroupError: the group does not let it in.
        """
        self.is_joining = True
        while not await self._try_to_join():
            pass
        self.is_joining = False

    async def _try_to_join(self) -> bool:
        answer = Reader(await self._connection.call(JOIN, self._joining()))
        answer.skip(4)
        code, generation_id, _, leader = (
            answer.int16(),
            answer.int32(),
            answer.text(),
            answer.text(),
        )
        self.member_id = answer.text()
        if code == errors_pb2.MEMBER_ID_REQUIRED:
            return False
        if code in _AGAIN or code == errors_pb2.UNKNOWN_MEMBER_ID:
            if code == errors_pb2.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            await async_let_time_pass(_PAUSE_S, "the coordinator may be ready the next time")
            return False
        if code:
            raise GroupError("JoinGroup", code)
        self.generation_id = generation_id
        assignments = {}
        if leader == self.member_id:
            assignments = self._assign([_joined(answer) for _ in range(answer.int32())])
        return await self._sync(assignments)

    def _joining(self) -> bytes:
        return b"".join(
            (
                self._group_id,
                struct.pack(">ii", self._timeouts.session_ms, self._timeouts.rebalance_ms),
                text(self.member_id),
                b"\xff\xff",
                text("consumer"),
                struct.pack(">i", 1),
                text("range"),
                data(_SUBSCRIPTION),
            )
        )

    async def _sync(self, assignments: dict[str, bytes]) -> bool:
        shares = b"".join(text(who) + data(what) for who, what in assignments.items())
        body = self._member() + b"\xff\xff" + struct.pack(">i", len(assignments)) + shares
        answer = Reader(await self._connection.call(SYNC, body))
        answer.skip(4)
        code = answer.int16()
        if code in _AGAIN or code == errors_pb2.UNKNOWN_MEMBER_ID:
            return False
        if code:
            raise GroupError("SyncGroup", code)
        self.assignment = answer.data()
        return True

    async def heartbeat(self) -> int:
        """A sign of life; an error code."""
        answer = Reader(await self._connection.call(HEARTBEAT, self._member() + b"\xff\xff"))
        answer.skip(4)
        return answer.int16()

    async def stay(self) -> None:
        """Be a member until cancelled, through every rebalance."""
        while True:
            await async_let_time_pass(self._timeouts.heartbeat_s, "members beat so often")
            if await self.heartbeat():
                await self.join()

    async def leave(self) -> int:
        body = self._group_id + text(self.member_id)
        answer = Reader(await self._connection.call(LEAVE, body))
        answer.skip(4)
        return answer.int16()

    def vanish(self) -> None:
        """Its process dies: nobody says good-bye."""
        self._connection.close()

    def _member(self) -> bytes:
        return self._group_id + struct.pack(">i", self.generation_id) + text(self.member_id)


def commit_body(
    group_id: str,
    topic: str,
    offsets: Sequence[tuple[int, int]],
    *,
    generation_id: int = -1,
    member_id: str = "",
) -> bytes:
    """An OffsetCommit of one topic: partition and offset of each."""
    partitions = b"".join(struct.pack(">iqih", p, offset, -1, 0) for p, offset in offsets)
    return b"".join(
        (
            text(group_id),
            struct.pack(">i", generation_id),
            text(member_id),
            struct.pack(">i", 1),
            text(topic),
            struct.pack(">i", len(offsets)),
            partitions,
        )
    )


def commit_codes(answer: bytes) -> list[int]:
    """Error codes of the partitions of one topic."""
    reader = Reader(answer)
    reader.skip(8)
    reader.text()
    codes = []
    for _ in range(reader.int32()):
        reader.skip(4)
        codes.append(reader.int16())
    return codes


class Reader:
    """Reads an answer from front to back."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._at = 0

    def skip(self, count: int) -> None:
        self._at += count

    def int16(self) -> int:
        return self._int(2)

    def int32(self) -> int:
        return self._int(4)

    def text(self) -> str:
        return self.take(max(0, self.int16())).decode()

    def data(self) -> bytes:
        return self.take(max(0, self.int32()))

    def _int(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def take(self, size: int) -> bytes:
        begin, self._at = self._at, self._at + size
        return self._answer[begin : self._at]


def _joined(answer: Reader) -> str:
    """The member id of one of those whom the leader is told of."""
    member_id = answer.text()
    answer.text()
    answer.data()
    return member_id


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


def data(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


_SUBSCRIPTION: Final = struct.pack(">hi", 0, 1) + text("orders") + data(b"")
