"""A client's watch over voters that fall silent, on virtual time."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import grpc
import pytest
from grpc.aio import Metadata

import quorate.quorum.client.watch
from quorate.common.types import MetadataOffset
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.quorum.client.directory import VoterDirectory
from quorate.quorum.client.watch import (
    HEARTBEAT_MAX_MS,
    SILENCE_S,
    TransactionsApplied,
    decoded,
    follow,
)
from quorate.quorum.quorum_errors import MetadataUnreadable
from quorate_proto.v1 import quorum_pb2 as pb
from tests.support.virtual_time import VirtualTimeLoop, pass_time


class Voter:
    """Sends what the test gives it, a second apart, and then nothing, with the stream open."""

    def __init__(self, events: Sequence[pb.WatchEvent]) -> None:
        self._events = list(events)
        self.asked_from: list[int] = []
        self.levels: list[int] = []
        self.allowed_ms: list[int] = []
        self.refusal: grpc.aio.AioRpcError | None = None

    def Watch(self, request: pb.WatchRequest) -> "Voter":
        self.asked_from.append(request.from_offset)
        self.levels.append(request.metadata_version_max)
        self.allowed_ms.append(request.heartbeat_max_ms)
        return self

    async def read(self) -> pb.WatchEvent:
        if self.refusal is not None:
            raise self.refusal
        if not self._events:
            await pass_time(3_600)
        await pass_time(1)
        return self._events.pop(0)

    def cancel(self) -> None: ...


class Directory:
    """Two voters, always in the same order."""

    def in_order_of_preference(self) -> list[str]:
        return ["one", "two"]

    def channel(self, address: str) -> str:
        return address


def through(offset: int) -> pb.WatchEvent:
    return pb.WatchEvent(applied_offset=offset)


def test_watch_leaves_a_voter_that_is_silent_but_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    heartbeats = [through(7)] * 10
    voters = {"one": Voter([through(7), *heartbeats]), "two": Voter([through(8), through(9)])}
    monkeypatch.setattr(quorate.quorum.client.watch, "stub_of", lambda address: voters[address])

    async def test() -> None:
        events = follow(cast("VoterDirectory", cast("Any", Directory())), MetadataOffset(5))
        told = [await anext(events) for _ in range(3)]
        assert [
            event.applied_offset for event in told if isinstance(event, TransactionsApplied)
        ] == [7, 8, 9]
        # Eleven seconds of heartbeats, then silence, then two events of the other voter.
        assert asyncio.get_running_loop().time() == pytest.approx(11 + SILENCE_S + 2, abs=0.2)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(test())
    assert (voters["one"].asked_from, voters["two"].asked_from) == ([5], [8])


@pytest.mark.parametrize(
    ("named_ms", "patience_s"),
    [(0, SILENCE_S), (1_500, SILENCE_S + 0.5), (2_000, SILENCE_S + 1), (1 << 30, SILENCE_S + 1)],
)
def test_watch_is_as_much_more_patient_as_the_last_event_said(
    monkeypatch: pytest.MonkeyPatch, named_ms: int, patience_s: float
) -> None:
    """And no more: a voter cannot make a watcher wait for ever."""
    before = pb.WatchEvent(applied_offset=7, heartbeat_ms=1_200)
    last = pb.WatchEvent(applied_offset=8, heartbeat_ms=named_ms)
    voters = {"one": Voter([before, last]), "two": Voter([through(9)])}
    monkeypatch.setattr(quorate.quorum.client.watch, "stub_of", lambda address: voters[address])

    async def test() -> None:
        events = follow(cast("VoterDirectory", cast("Any", Directory())), MetadataOffset(5))
        for _ in range(3):
            await anext(events)
        assert asyncio.get_running_loop().time() == pytest.approx(2 + patience_s + 1, abs=0.2)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(test())
    assert voters["one"].allowed_ms == [HEARTBEAT_MAX_MS]


def test_b6_a_watch_that_a_voter_refuses_for_its_level_ends_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    voter = Voter([])
    voter.refusal = grpc.aio.AioRpcError(
        grpc.StatusCode.FAILED_PRECONDITION, Metadata(), Metadata(), details="reads 6 at most"
    )
    monkeypatch.setattr(quorate.quorum.client.watch, "stub_of", lambda _: voter)

    async def test() -> None:
        watched = follow(cast("VoterDirectory", cast("Any", Directory())), MetadataOffset(0))
        with pytest.raises(MetadataUnreadable, match="reads 6 at most"):
            await anext(watched)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(test())
    assert voter.levels == [NEWEST_METADATA_VERSION]


@pytest.mark.parametrize(
    "events",
    [
        [pb.WatchEvent(snapshot_chunk=b"no"), pb.WatchEvent(snapshot_done=True)],
        [pb.WatchEvent(transactions=[pb.WatchedTransaction(transaction=b"no")])],
    ],
    ids=["a snapshot", "a transaction"],
)
async def test_b6_what_this_release_cannot_read_ends_a_watch_with_advice(
    events: Sequence[pb.WatchEvent],
) -> None:
    async def sent() -> AsyncIterator[pb.WatchEvent]:
        for event in events:
            yield event

    with pytest.raises(MetadataUnreadable, match="Install the release that the quorum runs"):
        await anext(decoded(sent(), MetadataOffset(0)))
