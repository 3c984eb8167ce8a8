"""An administrator's change: asked for again while it may pass, refused in the end, done once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import grpc
import pytest
from google.protobuf.message import Message
from grpc.aio import AioRpcError, Metadata

from quorate.quorum.operations.admin import QuorumAdmin
from quorate.quorum.quorum_errors import ChangeNotMade, NoSuchVoter, QuorumUnavailable
from quorate_proto.v1 import quorum_pb2 as pb
from tests.support.virtual_time import VirtualTimeLoop

NO_MAJORITY = (grpc.StatusCode.ABORTED, "no majority: start voter 3 first")
NO_SUCH_VOTER = (grpc.StatusCode.NOT_FOUND, "voter 2 is not in the quorum")
LOST = (grpc.StatusCode.UNAVAILABLE, "the leader changed meanwhile")

Answer = Message | tuple[grpc.StatusCode, str]


class Quorum:
    """A directory and a channel in one: the leader answers RemoveVoter as it is told."""

    addresses = ("host1:7101",)
    last_error = ""

    def __init__(self, answers: Iterator[Answer], members: tuple[int, ...] = (1, 2, 3)) -> None:
        self._answers = answers
        self._status = pb.QuorumStatusResponse(
            applied_offset=50, voters=[pb.VoterStatus(voter_id=each) for each in members]
        )
        self.asked = 0

    async def find_leader(self) -> str:
        return self.addresses[0]

    def channel(self, _address: str) -> "Quorum":
        return self

    def unary_unary(self, path: str, **_: object) -> Callable[..., Awaitable[Message]]:
        async def call(_request: Message, timeout: float) -> Message:
            if path.endswith("QuorumStatus"):
                return self._status
            self.asked += 1
            answer = next(self._answers)
            if isinstance(answer, Message):
                return answer
            code, details = answer
            raise AioRpcError(code, Metadata(), Metadata(), details)

        return call

    stream_stream = unary_stream = unary_unary


def removing(
    quorum: Quorum, timeout_s: float = 30.0, on_wait: Callable[[str], None] = lambda why: None
) -> int:
    admin = QuorumAdmin(quorum, timeout_s, patience_s=10.0, on_wait=on_wait)  # type: ignore[arg-type]
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(admin.remove_voter(2))


def forever(answer: Answer) -> Iterator[Answer]:
    while True:
        yield answer


def test_a_condition_that_passes_is_waited_for_and_said_once() -> None:
    said: list[str] = []
    answers: list[Answer] = [NO_MAJORITY, NO_MAJORITY, pb.RemoveVoterResponse(offset=7)]
    assert removing(Quorum(iter(answers)), on_wait=said.append) == 7
    assert said == [NO_MAJORITY[1]]


@pytest.mark.parametrize("timeout_s", [30.0, 5.0])
def test_one_that_does_not_is_refused_in_the_end_in_the_quorums_words(timeout_s: float) -> None:
    quorum = Quorum(forever(NO_MAJORITY))
    with pytest.raises(ChangeNotMade, match="no majority: start voter 3 first"):
        removing(quorum, timeout_s)
    assert 40 <= quorum.asked <= 110


def test_a_change_that_can_never_be_made_is_refused_at_once() -> None:
    quorum = Quorum(iter([(grpc.StatusCode.FAILED_PRECONDITION, "voter 2 is the last one")]))
    with pytest.raises(ChangeNotMade, match="the last one"):
        removing(quorum)


def test_a_quorum_that_does_not_answer_is_no_refusal() -> None:
    answers: list[Answer] = [NO_MAJORITY, *[LOST] * 1_000]
    with pytest.raises(QuorumUnavailable, match="the leader changed meanwhile"):
        removing(Quorum(iter(answers)))


def test_a_removal_whose_answer_was_lost_was_made() -> None:
    assert removing(Quorum(iter([LOST, NO_SUCH_VOTER]))) == 50


def test_who_was_never_there_is_not_removed() -> None:
    with pytest.raises(NoSuchVoter):
        removing(Quorum(iter([LOST, NO_SUCH_VOTER]), members=(1, 3)))
