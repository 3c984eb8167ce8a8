"""A client's connection to one leader: keep-alives and transactions, until a stream breaks."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from quorate.common.types import SessionId
from quorate.metadata_log.codec import result_from_proto
from quorate.metadata_log.records import TransactionResult
from quorate.quorum.client.directory import VoterDirectory
from quorate.quorum.client.pending_transactions import (
    PendingTransactions,
    read_columns,
    session_gone,
    settle,
)
from quorate.quorum.keep_alive_intervals import interval_to_keep_ms
from quorate.quorum.quorum_errors import TransactionInvalid, TransactionTooLarge
from quorate.quorum.voter_channels import stub_of
from quorate_proto.v1 import quorum_pb2 as pb

log = logging.getLogger(__name__)

FRAME_BYTES: Final = 1 << 20
REPLIES_AT_ONCE: Final = 128
"""Fewer replies are not worth frames and rounds of their own."""

BUSY_PAUSE_S: Final = 0.02
ANSWER_TIMEOUT_S: Final = 1.0
"""The time without an answer to a keep-alive after which the client looks for the leader again."""


class LeaderGone(Exception):
    """This voter does not lead, or no longer answers: the client looks for the leader again."""


class LeaderConnection:
    """One attempt to work with one leader. ``run`` ends with ``LeaderGone`` or another error."""

    def __init__(
        self,
        directory: VoterDirectory,
        address: str,
        session_id: SessionId,
        session_timeout_ms: int,
        pending: PendingTransactions,
        work: asyncio.Event,
        *,
        on_kept_alive: Callable[[int, float], None],
        on_session_gone: Callable[[SessionId], None],
        mark: Callable[[], int],
    ) -> None:
        """``mark`` returns the mark of the log folder, which keep-alives carry.

        ``on_kept_alive`` takes the time at which an answered keep-alive was sent, and that until
        the next one, in ms.
        """
        self._directory = directory
        self._address = address
        self._stub = stub_of(directory.channel(address))
        self._session_id = session_id
        self._timeout_ms = session_timeout_ms
        self._pending = pending
        self._work = work
        self._on_kept_alive = on_kept_alive
        self._on_session_gone = on_session_gone
        self._mark = mark
        self._owed = PendingAnswer(asyncio.get_running_loop().time)
        self._keep_alive_is_owed = False

    async def run(self) -> None:
        """Work until the leader or the session is gone.

        Raises:
            LeaderGone, grpc.aio.AioRpcError: look for the leader again.
        """
        self._pending.send_again()
        self._work.set()
        call = self._stub.Transact()
        tasks = [
            asyncio.create_task(self._keep_alive(), name="quorum-keep-alive"),
            asyncio.create_task(self._write_frames(call), name="quorum-transactions"),
            asyncio.create_task(self._read_replies(call), name="quorum-replies"),
            asyncio.create_task(self._wait_until_leader_is_doubtful(), name="quorum-leader-doubt"),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            call.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # -- keep-alives -----------------------------------------------------------------------------

    async def _keep_alive(self) -> None:
        """Keep the session alive; return when it is gone for good."""
        call = self._stub.KeepAlive()
        sequence = 0
        try:
            while True:
                sequence += 1
                sent_ms = int(time.monotonic() * 1000)
                ping = pb.KeepAliveRequest(
                    session_id=self._session_id, sequence=sequence, mark=self._mark()
                )
                self._keep_alive_is_owed = True
                self._owed.asked()
                await _write(call, ping)
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    answer: Any = await call.read()
                if not isinstance(answer, pb.KeepAliveResponse) or answer.not_leader:
                    raise LeaderGone
                if not answer.alive:
                    self._on_session_gone(self._session_id)
                    return
                interval_ms = interval_to_keep_ms(self._timeout_ms, answer.interval_ms)
                self._on_kept_alive(sent_ms, interval_ms)
                self._keep_alive_is_owed = False
                self._heard()
                await asyncio.sleep(interval_ms / 1000)
        except TimeoutError:
            raise LeaderGone from None
        finally:
            call.cancel()

    # -- doubt -----------------------------------------------------------------------------------

    async def _wait_until_leader_is_doubtful(self) -> None:
        """Return when this leader is silent and another one leads in a later term."""
        while True:
            await asyncio.sleep(DOUBT_EVERY_S)
            if self._owed.is_in_doubt and await self._directory.leads_elsewhere(self._address):
                raise LeaderGone

    def _heard(self) -> None:
        self._owed.heard(owes_more=self._keep_alive_is_owed or self._pending.awaits_an_answer)

    # -- transactions ----------------------------------------------------------------------------

    async def _read_replies(self, call: Any) -> None:  # noqa: ANN401 - generic in grpc
        while True:
            frame = await call.read()
            if not isinstance(frame, pb.TransactReplyFrame):
                raise LeaderGone
            await self._take_effects(list(read_columns(frame.taken_effect)))
            for reply in frame.replies:
                self._take_reply(reply)
            self._heard()

    async def _take_effects(self, replies: list[tuple[int, TransactionResult]]) -> None:
        """Settle these transactions, a good part at a time.

        Callers that write again at once then do so in several frames: while the quorum works on the
        first, the next is filled. Otherwise all of them and the quorum would wait for each other.
        """
        at_once = max(REPLIES_AT_ONCE, len(replies) // 4)
        for start in range(0, len(replies), at_once):
            if start:
                await asyncio.sleep(0)
            for request_id, result in replies[start : start + at_once]:
                pending = self._pending.forget(request_id)
                if pending is not None and not pending.future.done():
                    pending.future.set_result(result)

    async def _write_frames(self, call: Any) -> None:  # noqa: ANN401 - generic in grpc
        """Write frames of transactions. While one is being written, the next one fills up."""
        while True:
            await self._work.wait()
            self._work.clear()
            while batch := self._pending.take_unsent(FRAME_BYTES):
                self._owed.asked()
                frame = pb.TransactFrame(
                    transactions=[pending.encoded for pending in batch],
                    request_ids=[pending.sequence for pending in batch],
                )
                await _write(call, frame)

    def _take_reply(self, reply: pb.TransactReply) -> None:
        pending = self._pending.get(reply.request_id)
        if pending is None:
            return
        match reply.status:
            case pb.TRANSACT_DONE:
                result = result_from_proto(reply.result)
                self._pending.forget(pending.sequence)
                settle(pending, result)
                if session_gone(pending, result):
                    self._on_session_gone(pending.session_id)
            case pb.TRANSACT_TOO_LARGE:
                self._refuse(reply, TransactionTooLarge(reply.detail))
            case pb.TRANSACT_INVALID:
                self._refuse(reply, TransactionInvalid(reply.detail))
            case pb.TRANSACT_BUSY:
                loop = asyncio.get_running_loop()
                loop.call_later(BUSY_PAUSE_S, self._try_again, pending.sequence)
            case _:
                raise LeaderGone

    def _refuse(self, reply: pb.TransactReply, error: Exception) -> None:
        pending = self._pending.forget(reply.request_id)
        if pending is not None and not pending.future.done():
            pending.future.set_exception(error)

    def _try_again(self, sequence: int) -> None:
        self._pending.retry(sequence)
        self._work.set()


async def _write(call: Any, message: Any) -> None:  # noqa: ANN401 - generic in grpc
    try:
        await call.write(message)
    except asyncio.InvalidStateError:
        raise LeaderGone from None  # grpc raises this when the call has ended.


# A client may doubt that its leader still leads, though the connection stands.
#
# A process that is stopped, or behind a cut link, closes nothing: only its silence shows. Silence
# alone is no reason to leave, for a busy leader is silent as well; a later term with another leader
# is. So a client that waits for an answer asks the other voters, who are not busy with it.


DOUBT_AFTER_S: Final = 0.25
"""This is less than an election takes, so the answer is there when the new leader is."""

DOUBT_EVERY_S: Final = 0.1


class PendingAnswer:
    """Measures for how long a leader has owed an answer without giving any."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._since_s: float | None = None

    def asked(self) -> None:
        """Note that something was sent which will be answered."""
        if self._since_s is None:
            self._since_s = self._clock_s()

    def heard(self, *, owes_more: bool) -> None:
        """Note that some answer came; others may still be due."""
        self._since_s = self._clock_s() if owes_more else None

    @property
    def is_in_doubt(self) -> bool:
        return self._since_s is not None and self._clock_s() - self._since_s >= DOUBT_AFTER_S
