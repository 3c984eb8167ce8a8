"""Each call of a quorum, by who makes it: bound to the id in the certificate (F5).

A new call of the service without a row here fails the test.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import grpc
import pytest

from quorate.common.tls.identity import Role
from quorate.common.types import BrokerId, Endpoint, SessionId
from quorate.metadata_log.codec import encode_transaction, result_from_proto
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import (
    BrokerRegistration,
    Operation,
    ResultCode,
    Transaction,
)
from quorate.metadata_log.snapshot.snapshot import decode_snapshot
from quorate.quorum.client.watch import watch_request
from quorate.quorum.voter.leader_forwarding import FOR_BROKER, FORWARDED_ONCE
from quorate.quorum.voter_channels import open_channel, stub_of
from quorate_proto.v1 import quorum_pb2 as pb
from tests.support.quorum_cluster import QuorumCluster, security_in
from tests.support.waiting import async_wait_until

pytestmark = pytest.mark.integration

OK = grpc.StatusCode.OK
DENIED = grpc.StatusCode.PERMISSION_DENIED
OTHER = grpc.StatusCode.FAILED_PRECONDITION
"""It was let in, and what it asked for cannot be done: there is no voter 9."""

TIMEOUT_S = 10.0
Stub = Any
Ask = Callable[[Stub, SessionId, int], Awaitable[object]]


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorumCluster]:
    with QuorumCluster(tmp_path_factory.mktemp("identities"), secure=True) as cluster:
        assert cluster.authority is not None
        for broker_id in (2, 3):
            cluster.authority.issue_node(Role.BROKER, broker_id)
        yield cluster


def stub_at(quorum: QuorumCluster, voter_id: int, stem: str, role: Role) -> Any:  # noqa: ANN401
    assert quorum.authority is not None
    return open_channel(quorum.address(voter_id), security_in(quorum.authority, stem, role))


async def leader_of(quorum: QuorumCluster) -> int:
    async with stub_at(quorum, 1, "admin", Role.ADMIN) as channel:
        found: list[int] = []

        async def led() -> bool:
            status = await stub_of(channel).QuorumStatus(pb.QuorumStatusRequest(), timeout=5)
            found[:] = [status.leader_id]
            return bool(status.leader_id)

        await async_wait_until(led, "a leader")
        return found[0]


async def image_of(quorum: QuorumCluster) -> Image:
    async with stub_at(quorum, 1, "admin", Role.ADMIN) as channel:
        request = pb.ReadRequest(linearizable=True, include_image=True)
        answer = await stub_of(channel).Read(request, timeout=TIMEOUT_S)
        return decode_snapshot([answer.snapshot])


# --- the calls ------------------------------------------------------------------------------------


async def open_session(stub: Stub, _session: SessionId, broker_id: int) -> SessionId:
    request = pb.OpenSessionRequest(timeout_ms=30_000, description=f"broker {broker_id}")
    return SessionId((await stub.OpenSession(request, timeout=TIMEOUT_S)).session_id)


async def close_session(stub: Stub, session: SessionId, _broker_id: int) -> None:
    await stub.CloseSession(pb.CloseSessionRequest(session_id=session), timeout=TIMEOUT_S)


async def keep_alive(stub: Stub, session: SessionId, _broker_id: int) -> None:
    async def pings() -> AsyncIterator[pb.KeepAliveRequest]:
        yield pb.KeepAliveRequest(session_id=session, sequence=1, mark=1 << 40)

    async for _ in stub.KeepAlive(pings(), timeout=TIMEOUT_S):
        return


async def transact(stub: Stub, session: SessionId, broker_id: int) -> None:
    registration = BrokerRegistration(
        broker_id=BrokerId(broker_id),
        session_id=session,
        incarnation_id=bytes(15) + bytes([broker_id]),
        kafka=Endpoint("h", 1),
        grpc=Endpoint("h", 2),
        metadata_version_max=NEWEST_METADATA_VERSION,
    )
    transaction = Transaction(
        operations=(Operation(records=(registration,)),), client_id=session, sequence=1
    )
    encoded = encode_transaction(transaction)

    async def frames() -> AsyncIterator[pb.TransactFrame]:
        yield pb.TransactFrame(transactions=[encoded], request_ids=[1])

    async for frame in stub.Transact(frames(), timeout=TIMEOUT_S):
        for reply in frame.replies:
            (result,) = result_from_proto(reply.result).results
            if result.code is ResultCode.OK:
                return
            assert "is broker 3's, not broker 2's" in result.detail
            raise NotPermitted


class NotPermitted(Exception):
    """A transaction was refused by the rules of ``apply``, because it is another broker's."""


async def read(stub: Stub, _session: SessionId, _broker_id: int) -> None:
    await stub.Read(pb.ReadRequest(linearizable=True), timeout=TIMEOUT_S)


async def watch(stub: Stub, _session: SessionId, _broker_id: int) -> None:
    async for _ in stub.Watch(watch_request(), timeout=TIMEOUT_S):
        return


async def status(stub: Stub, _session: SessionId, _broker_id: int) -> None:
    await stub.QuorumStatus(pb.QuorumStatusRequest(), timeout=TIMEOUT_S)


async def add_voter(stub: Stub, _session: SessionId, _broker_id: int) -> None:
    request = pb.AddVoterRequest(voter_id=1, raft_address="127.0.0.1:1", grpc_address="127.0.0.1:2")
    async for _ in stub.AddVoter(request, timeout=TIMEOUT_S):
        return


async def remove_voter(stub: Stub, _session: SessionId, _broker_id: int) -> None:
    await stub.RemoveVoter(pb.RemoveVoterRequest(voter_id=9), timeout=TIMEOUT_S)


async def transfer(stub: Stub, _session: SessionId, _broker_id: int) -> None:
    await stub.TransferLeadership(pb.TransferLeadershipRequest(voter_id=9), timeout=TIMEOUT_S)


TABLE: dict[str, tuple[Ask, tuple[grpc.StatusCode, ...]]] = {
    # Broker 2 as itself, broker 2 in the name or session of broker 3, a voter, an administrator.
    "OpenSession": (open_session, (OK, DENIED, OK, OK)),
    "CloseSession": (close_session, (OK, DENIED, OK, OK)),
    "KeepAlive": (keep_alive, (OK, DENIED, DENIED, OK)),
    "Transact": (transact, (OK, DENIED, DENIED, OK)),
    "Read": (read, (OK, OK, OK, OK)),
    "Watch": (watch, (OK, OK, DENIED, OK)),
    "QuorumStatus": (status, (OK, OK, OK, OK)),
    "AddVoter": (add_voter, (DENIED, DENIED, DENIED, OTHER)),
    "RemoveVoter": (remove_voter, (DENIED, DENIED, OTHER, OTHER)),
    "TransferLeadership": (transfer, (DENIED, DENIED, OTHER, OTHER)),
}
"""Read, Watch and QuorumStatus name nobody: every broker holds all metadata. A voter passes on what
only the leader does. It may also close sessions, for whose sake it does so is its word.
"""

CALLERS = (
    ("broker-2", Role.BROKER, 2),
    ("broker-2", Role.BROKER, 3),
    ("voter-1", Role.VOTER, 3),
    ("admin", Role.ADMIN, 3),
)


async def outcome_of(ask: Ask, stub: Stub, session: SessionId, broker_id: int) -> grpc.StatusCode:
    """Return how the call ends. gRPC's client says INTERNAL if it was still writing when the server
    refused a stream, so the call is tried again then.
    """
    for _ in range(5):
        code = await ended(ask(stub, session, broker_id))
        if code is not grpc.StatusCode.INTERNAL:
            break
    return code


async def ended(asked: Awaitable[object]) -> grpc.StatusCode:
    try:
        await asked
    except NotPermitted:
        return DENIED
    except grpc.aio.AioRpcError as error:
        code: grpc.StatusCode = error.code()
        return OTHER if code is grpc.StatusCode.NOT_FOUND else code
    return OK


def test_every_call_has_a_row() -> None:
    service = pb.DESCRIPTOR.services_by_name["Quorum"]
    assert set(TABLE) == {method.name for method in service.methods}


@pytest.mark.parametrize("name", TABLE)
async def test_f5_each_call_is_bound_to_the_certificate(quorum: QuorumCluster, name: str) -> None:
    ask, expected = TABLE[name]
    leader = await leader_of(quorum)
    outcomes = []
    for stem, role, broker_id in CALLERS:
        async with (
            stub_at(quorum, leader, f"broker-{broker_id}", Role.BROKER) as owners,
            stub_at(quorum, leader, stem, role) as callers,
        ):
            session = await open_session(stub_of(owners), SessionId(b""), broker_id)
            outcomes.append(await outcome_of(ask, stub_of(callers), session, broker_id))
            await close_session(stub_of(owners), session, broker_id)
    assert tuple(outcomes) == expected


@pytest.mark.parametrize("name", ["OpenSession", "CloseSession"])
async def test_f5_what_a_voter_passes_on_stays_bound(quorum: QuorumCluster, name: str) -> None:
    ask, expected = TABLE[name]
    leader = await leader_of(quorum)
    follower = next(one for one in quorum.voter_ids if one != leader)
    for (stem, role, broker_id), code in zip(CALLERS[:2], expected, strict=False):
        async with (
            stub_at(quorum, follower, f"broker-{broker_id}", Role.BROKER) as owners,
            stub_at(quorum, follower, stem, role) as callers,
        ):
            session = await open_session(stub_of(owners), SessionId(b""), broker_id)
            assert (await image_of(quorum)).sessions[session].broker_id == broker_id
            assert await ended(ask(stub_of(callers), session, broker_id)) is code
            await close_session(stub_of(owners), session, broker_id)


async def test_f5_only_a_voters_word_counts_for_whom_a_call_is_passed_on(
    quorum: QuorumCluster,
) -> None:
    leader = await leader_of(quorum)
    said = (*FORWARDED_ONCE, (FOR_BROKER, "3"))
    async with (
        stub_at(quorum, leader, "broker-3", Role.BROKER) as owners,
        stub_at(quorum, leader, "broker-2", Role.BROKER) as callers,
    ):
        session = await open_session(stub_of(owners), SessionId(b""), 3)
        request = pb.CloseSessionRequest(session_id=session)
        call = stub_of(callers).CloseSession(request, timeout=TIMEOUT_S, metadata=said)
        assert await ended(call) is DENIED
        assert session in (await image_of(quorum)).sessions


async def test_a_session_needs_no_description_like_a_brokers(quorum: QuorumCluster) -> None:
    leader = await leader_of(quorum)
    async with stub_at(quorum, leader, "broker-2", Role.BROKER) as channel:
        for description, code in (
            ("", OK),
            ("bench", OK),
            ("Broker 99\n", DENIED),
            ("x" * 257, DENIED),
        ):
            request = pb.OpenSessionRequest(timeout_ms=6_000, description=description)
            assert await ended(stub_of(channel).OpenSession(request, timeout=TIMEOUT_S)) is code
