"""The leader's end of a framed stream: it carries a ``ReplicaFetchSession`` over one connection.

Nothing here is a task: a frame that arrives is taken in at once, and responses leave once per turn
of the event loop, with the news of all partitions.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast

from quorate.broker.replication.frames import MalformedFrame
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.serving.replica_fetch_session import (
    ReplicaFetchSession,
    WrongSender,
)
from quorate.broker.replication.streams.frame_reader import FrameReader
from quorate.broker.replication.streams.packed_codec import (
    HELLO,
    HELLO_BYTES_MAX,
    REQUEST,
    VERSION,
    decode_hello,
    decode_request,
    encode_refusal,
    encode_response,
    open_frame,
)
from quorate.broker.rpc.peer_channels import GRPC_REQUEST_BYTES_MAX
from quorate.common.types import BrokerId

log = logging.getLogger(__name__)

HELLO_TIMEOUT_S: Final = 10.0
"""The time that a connection has to say who it is."""

_JOINED_BYTES_MAX: Final = 16 << 10
"""The size up to which the pieces of a response are joined: one copy costs less than their list."""


class LeaderStream(asyncio.BufferedProtocol):
    """The protocol of one accepted connection of a follower."""

    def __init__(
        self,
        table: PartitionTable,
        prove: Callable[[asyncio.BaseTransport], BrokerId | None],
        on_opened: Callable[["LeaderStream"], None],
        on_closed: Callable[["LeaderStream"], None],
    ) -> None:
        """``prove`` returns the broker whose certificate the connection has, or None without TLS.
        It raises ``WrongSender`` for anybody else.
        """
        self._table = table
        self._prove = prove
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._proven: BrokerId | None = None
        self._frames = FrameReader(HELLO_BYTES_MAX)
        self._session: ReplicaFetchSession | None = None
        self._responding = False
        self._is_paused = False
        self._is_over = False
        self._deadline: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport
        self._loop: asyncio.AbstractEventLoop
        self.peer = "?"

    @property
    def has_said_hello(self) -> bool:
        """Whether it is known who fetches here."""
        return self._session is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if address else "?"
        self._deadline = self._loop.call_later(HELLO_TIMEOUT_S, self._no_hello)
        self._on_opened(self)
        try:
            self._proven = self._prove(transport)
        except WrongSender as error:
            self.refuse(str(error))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_over:
            return
        try:
            for frame in self._frames.received(nbytes):
                kind, header, _ = open_frame(frame)
                if self._session is None:
                    self._session = self._greet(kind, header)
                elif kind == REQUEST:
                    self._session.on_request(decode_request(header))
                else:
                    raise MalformedFrame(f"a follower sends no frame of kind {kind}")
        except (MalformedFrame, WrongSender) as error:
            self.refuse(str(error))
        except Exception as error:
            log.exception("the stream of the follower at %s failed", self.peer)
            self.refuse(f"broker {self._table.broker_id} failed: {error!r}")
        else:
            self._begin_to_wait()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        self._stop_waiting()
        if self._session is not None:
            self._session.close()
        log.debug("the stream of the follower at %s ended: %r", self.peer, exc)
        self._on_closed(self)

    def wake(self) -> None:
        """Respond in the next turn of the event loop, if a response is due then."""
        if not self._responding:
            self._responding = True
            self._loop.call_soon(self._respond)

    def close(self) -> None:
        """Close the connection, after what was written has left."""
        self._is_over = True
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once, also if the follower does not read what was written."""
        self._is_over = True
        self._transport.abort()

    def refuse(self, why: str) -> None:
        """Tell the follower why it is not served, and close the connection."""
        log.warning("a follower's stream from %s is refused: %s", self.peer, why)
        self._transport.write(encode_refusal(why))
        self.close()

    def _greet(self, kind: int, header: memoryview) -> ReplicaFetchSession:
        """Begin the session of the follower that a hello names.

        Raises:
            MalformedFrame: it is no hello, or of another version.
            WrongSender: it does not name the broker of the certificate, or wants another leader.
        """
        if kind != HELLO:
            raise MalformedFrame(f"the first frame of a follower is of kind {kind}, not a hello")
        hello = decode_hello(header)
        if hello.version != VERSION:
            raise MalformedFrame(f"version {hello.version} of the frames; {VERSION} is known here")
        if hello.leader != self._table.broker_id:
            raise WrongSender(f"this is broker {self._table.broker_id}, not {hello.leader}")
        if self._proven not in (None, hello.follower):
            raise WrongSender(f"broker {self._proven} asks as broker {hello.follower}")
        self._stop_waiting()
        self._frames.frame_bytes_max = GRPC_REQUEST_BYTES_MAX
        return ReplicaFetchSession(self._table, self.wake, hello.follower)

    def _begin_to_wait(self) -> None:
        """See to it that the request that is unanswered is answered in time."""
        session = self._session
        if session is None or not session.wants_data or self._deadline is not None:
            return
        if not self._look_again(session):
            self.wake()

    def _no_hello(self) -> None:
        self.refuse(f"no hello came within {HELLO_TIMEOUT_S:.0f} s")

    def _respond(self) -> None:
        self._responding = False
        session = self._session
        if session is None or self._is_over or self._is_paused or not session.wants_data:
            return
        if self._look_again(session):
            return
        response = encode_response(session.take_response())
        if len(response) == 1:
            self._transport.write(response[0])
        elif sum(map(len, response)) <= _JOINED_BYTES_MAX:
            self._transport.write(b"".join(response))
        else:
            self._transport.writelines(response)

    def _look_again(self, session: ReplicaFetchSession) -> bool:
        """Look again when a response may be due. Return False if one is due now.

        A timer that runs already is kept if it is early enough: most long polls are answered long
        before they end, and a timer for each would cost more than the answer.
        """
        due_s = session.due_in_s()
        if due_s is None or due_s <= 0:
            return False
        at_s = self._loop.time() + due_s
        if self._deadline is not None:
            if self._deadline.when() <= at_s:
                return True
            self._deadline.cancel()
        self._deadline = self._loop.call_at(at_s, self._is_time)
        return True

    def _is_time(self) -> None:
        self._deadline = None
        self._respond()

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
