"""The server's end of a ``Transact`` stream: frames of transactions in, replies per round out."""

import asyncio
from itertools import compress
from typing import Any, Final

import grpc

from quorate.common.types import BrokerId
from quorate.metadata_log.codec import as_of_client, result_to_proto
from quorate.metadata_log.features import PROVEN_WRITERS
from quorate.metadata_log.records import Transaction, TransactionResult
from quorate.quorum.client.pending_transactions import ReplyColumns
from quorate.quorum.raft.driver import ProposalOutcome, ProposalRun, Settled
from quorate.quorum.voter.voter import Voter
from quorate_proto.v1 import quorum_pb2 as pb

_STATUS_OF: Final = {
    ProposalOutcome.NOT_LEADER: pb.TRANSACT_NOT_LEADER,
    ProposalOutcome.UNKNOWN: pb.TRANSACT_UNKNOWN,
}


class TransactStream:
    """The stream of one client. It answers in any order, with one frame for all replies that are
    ready.
    """

    def __init__(self, voter: Voter, broker_id: BrokerId | None) -> None:
        """``broker_id`` is the broker whose certificate the client has shown, or None if it has
        shown none.
        """
        self._voter = voter
        self._broker_id = broker_id
        self._completed: list[Settled] = []
        self._refused: list[pb.TransactReply] = []
        self._ready = asyncio.Event()
        self._unanswered = 0
        self._half_closed = False

    async def serve(
        self,
        context: "grpc.aio.ServicerContext[pb.TransactFrame, pb.TransactReplyFrame]",
        frames: Any,  # noqa: ANN401 - an async iterator of frames, untyped in grpc
    ) -> None:
        """Serve until the client has closed its side and every transaction is answered."""
        writer = asyncio.create_task(self._write(context), name="transact-replies")
        try:
            async for frame in frames:
                if len(frame.transactions) != len(frame.request_ids):
                    await context.abort(
                        grpc.StatusCode.INVALID_ARGUMENT,
                        f"{len(frame.transactions)} transactions with "
                        f"{len(frame.request_ids)} request ids",
                    )
                self._take(frame)
            self._half_closed = True
            self._ready.set()
            await writer
        finally:
            writer.cancel()

    def completed(self, settled: Settled) -> None:
        """Called for proposals of this stream when their outcome is known."""
        self._completed.append(settled)
        self._ready.set()

    def _take(self, frame: pb.TransactFrame) -> None:
        if not self._voter.accepts_proposals:
            for request_id in frame.request_ids:
                self._refuse(request_id, pb.TRANSACT_NOT_LEADER)
            return
        run = self._run_of(frame)
        if run.commands and not self._voter.submit(run):
            for request_id in run.request_ids:
                self._refuse(request_id, pb.TRANSACT_BUSY)
            return
        self._unanswered += len(run.commands)

    def _run_of(self, frame: pb.TransactFrame) -> ProposalRun:
        """Return the frame's transactions, without those that are too large."""
        writer = self._writer()
        commands = [as_of_client(transaction, writer) for transaction in frame.transactions]
        request_ids = list(frame.request_ids)
        if max(map(len, frame.transactions), default=0) > Transaction.MAX_ENCODED_BYTES:
            sizes = list(zip(request_ids, map(len, frame.transactions), strict=True))
            for request_id, size in sizes:
                if size > Transaction.MAX_ENCODED_BYTES:
                    detail = f"{size} bytes, {Transaction.MAX_ENCODED_BYTES} at most"
                    self._refuse(request_id, pb.TRANSACT_TOO_LARGE, detail)
            fits = [size <= Transaction.MAX_ENCODED_BYTES for _, size in sizes]
            commands = list(compress(commands, fits))
            request_ids = list(compress(request_ids, fits))
        return ProposalRun(commands, self, request_ids)

    def _writer(self) -> BrokerId | None:
        """Return the broker that transactions are noted to come from.

        None is noted below a level of metadata_version at which every voter can read such a note.
        """
        if self._voter.image.metadata_version < PROVEN_WRITERS:
            return None
        return self._broker_id

    def _refuse(
        self, request_id: int, status: "pb.TransactStatus.ValueType", detail: str = ""
    ) -> None:
        self._refused.append(
            pb.TransactReply(
                request_id=request_id,
                status=status,
                detail=detail,
                leader_id=self._voter.leadership.leader_id,
            )
        )
        self._ready.set()

    async def _write(
        self, context: "grpc.aio.ServicerContext[pb.TransactFrame, pb.TransactReplyFrame]"
    ) -> None:
        while not (self._half_closed and self._unanswered == 0 and not self._refused):
            await self._ready.wait()
            self._ready.clear()
            completed, self._completed = self._completed, []
            refused, self._refused = self._refused, []
            self._unanswered -= sum(len(settled.results) for settled in completed)
            if completed or refused:
                await context.write(self._replies(completed, refused))

    def _replies(
        self, completed: list[Settled], refused: list[pb.TransactReply]
    ) -> pb.TransactReplyFrame:
        columns = ReplyColumns()
        replies = refused
        for run, start, results, outcome in completed:
            request_ids = run.request_ids[start : start + len(results)]
            if outcome is ProposalOutcome.COMMITTED:
                replies += [_reply(*left) for left in columns.take(request_ids, results)]
            else:
                leader_id = self._voter.leadership.leader_id
                replies += [
                    pb.TransactReply(
                        request_id=request_id, status=_STATUS_OF[outcome], leader_id=leader_id
                    )
                    for request_id in request_ids
                ]
        return pb.TransactReplyFrame(replies=replies, taken_effect=columns.to_proto())


def _reply(request_id: int, result: TransactionResult | None) -> pb.TransactReply:
    if result is None:
        return pb.TransactReply(
            request_id=request_id,
            status=pb.TRANSACT_INVALID,
            detail="not a transaction that this version of the quorum understands",
        )
    return pb.TransactReply(request_id=request_id, result=result_to_proto(result))
