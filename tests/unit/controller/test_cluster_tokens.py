"""Delegation tokens in a whole cluster: through failovers, changed keys, and to their end."""

import pytest

from quorate.broker.changes.table import (
    CREATE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
)
from quorate.broker.controller.managers.placement import NewIds
from quorate.broker.security.token_secrets import secret_of
from quorate.common.types import TopicId
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.virtual_time import pass_time
from tests.support.waiting import async_wait_until
from tests.unit.controller.cluster import Cluster

KEY, OLD = b"the newest key", b"the key before"
HOUR_MS = 3_600_000

ALICE = admin_pb2.RequestContext(principal_name="User:alice")
MALLORY = admin_pb2.RequestContext(principal_name="User:mallory")


@pytest.fixture(autouse=True)
def _keys(cluster: Cluster) -> None:
    cluster.token_keys = (KEY,)


async def created(
    cluster: Cluster, context: admin_pb2.RequestContext = ALICE
) -> admin_pb2.CreateDelegationTokenResponse:
    request = admin_pb2.CreateDelegationTokenRequest(context=context)
    return await cluster.active.perform(CREATE_DELEGATION_TOKEN, request)


async def renewed(
    cluster: Cluster, hmac: bytes, context: admin_pb2.RequestContext = ALICE, period_ms: int = -1
) -> admin_pb2.RenewDelegationTokenResponse:
    request = admin_pb2.RenewDelegationTokenRequest(
        context=context, hmac=hmac, renew_period_ms=period_ms
    )
    return await cluster.active.perform(RENEW_DELEGATION_TOKEN, request)


async def expired(
    cluster: Cluster, hmac: bytes, context: admin_pb2.RequestContext = ALICE, period_ms: int = -1
) -> admin_pb2.ExpireDelegationTokenResponse:
    request = admin_pb2.ExpireDelegationTokenRequest(
        context=context, hmac=hmac, expiry_time_period_ms=period_ms
    )
    return await cluster.active.perform(EXPIRE_DELEGATION_TOKEN, request)


async def test_f1_a_token_is_made_renewed_and_ended(cluster: Cluster) -> None:
    answer = await created(cluster)
    assert answer.error_code == errors_pb2.NONE
    token = answer.token
    assert (token.owner, token.requester) == ("User:alice", "User:alice")
    assert answer.hmac == secret_of(KEY, token.token_id)
    assert token.issue_ms == cluster.wall_clock_ms
    brokers = cluster.brokers.values()
    await async_wait_until(
        lambda: all(token.token_id in one.follower.image.tokens for one in brokers),
        "every broker to know of the token",
    )
    cluster.wall_clock_ms += HOUR_MS
    later = await renewed(cluster, answer.hmac)
    assert (later.error_code, later.expiry_ms) == (0, cluster.wall_clock_ms + 24 * HOUR_MS)
    ended = await expired(cluster, answer.hmac)
    assert (ended.error_code, ended.expiry_ms) == (0, cluster.wall_clock_ms)
    assert not cluster.image.tokens
    again = await renewed(cluster, answer.hmac)
    assert again.error_code == errors_pb2.DELEGATION_TOKEN_NOT_FOUND


async def test_f3_a_token_outlives_the_controller_that_made_it(cluster: Cluster) -> None:
    answer = await created(cluster)
    await cluster.kill(1)
    await cluster.when(lambda: cluster.controller is not None)
    assert (await renewed(cluster, answer.hmac, period_ms=HOUR_MS)).error_code == 0
    token = cluster.image.tokens[answer.token.token_id]
    assert token.expiry_ms == cluster.wall_clock_ms + HOUR_MS
    mallory = await renewed(cluster, answer.hmac, MALLORY)
    assert mallory.error_code == errors_pb2.DELEGATION_TOKEN_OWNER_MISMATCH


async def test_forged_secrets_and_strangers_change_nothing(cluster: Cluster) -> None:
    answer = await created(cluster)
    before = cluster.image.tokens
    forged = secret_of(b"a guess", answer.token.token_id)
    for hmac in (forged, b"", answer.token.token_id.encode(), answer.hmac[:-1]):
        assert (await renewed(cluster, hmac)).error_code == errors_pb2.DELEGATION_TOKEN_NOT_FOUND
        assert (await expired(cluster, hmac)).error_code == errors_pb2.DELEGATION_TOKEN_NOT_FOUND
    mismatch = errors_pb2.DELEGATION_TOKEN_OWNER_MISMATCH
    assert (await expired(cluster, answer.hmac, MALLORY)).error_code == mismatch
    assert cluster.image.tokens == before


async def test_a_token_of_an_older_key_can_be_renewed_until_that_is_withdrawn(
    cluster: Cluster,
) -> None:
    cluster.token_keys = (OLD,)
    old = await created(cluster)
    cluster.token_keys = (KEY, OLD)
    new = await created(cluster)
    assert new.hmac == secret_of(KEY, new.token.token_id)
    assert (await renewed(cluster, old.hmac)).error_code == 0
    cluster.token_keys = (KEY,)
    assert (await renewed(cluster, new.hmac)).error_code == 0
    withdrawn = await renewed(cluster, old.hmac)
    assert withdrawn.error_code == errors_pb2.DELEGATION_TOKEN_NOT_FOUND


async def test_without_a_key_tokens_are_switched_off(cluster: Cluster) -> None:
    answer = await created(cluster)
    cluster.token_keys = ()
    for refused in (
        await created(cluster),
        await renewed(cluster, answer.hmac),
        await expired(cluster, answer.hmac),
    ):
        assert refused.error_code == errors_pb2.DELEGATION_TOKEN_AUTH_DISABLED
        assert "delegation.token.secret.key" in refused.error_message
    anonymous = await created(cluster, admin_pb2.RequestContext())
    assert anonymous.error_code == errors_pb2.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_ended_tokens_are_removed_at_the_interval(cluster: Cluster) -> None:
    ending, staying = await created(cluster), await created(cluster)
    assert (await expired(cluster, ending.hmac, period_ms=HOUR_MS)).error_code == 0
    cluster.wall_clock_ms += HOUR_MS + 1
    assert len(cluster.image.tokens) == 2
    await pass_time(HOUR_MS / 1000 + 1)
    assert list(cluster.image.tokens) == [staying.token.token_id]


class OneIdForAll(Cluster):
    def draw(self) -> NewIds:
        return super().draw()._replace(topic_id=TopicId(b"the same as ever"))


async def test_what_the_log_refuses_is_not_made() -> None:
    cluster = OneIdForAll()
    cluster.token_keys = (KEY,)
    await cluster.start_brokers(1)
    first = await created(cluster)
    refused = await created(cluster, MALLORY)
    assert refused.error_code == errors_pb2.INVALID_REQUEST
    assert not refused.hmac
    assert cluster.image.tokens[first.token.token_id].owner == "User:alice"
    await cluster.stop()


async def test_without_a_quorum_the_outcome_is_said_to_be_unknown(cluster: Cluster) -> None:
    cluster.quorum.available = False
    assert (await created(cluster)).error_code == errors_pb2.REQUEST_TIMED_OUT
    cluster.quorum.available = True


async def test_a_controller_that_left_office_sends_the_asker_on(cluster: Cluster) -> None:
    former = cluster.active
    cluster.hand_over(1, 2)
    await cluster.at_rest()
    request = admin_pb2.CreateDelegationTokenRequest(context=ALICE)
    answer = await former.perform(CREATE_DELEGATION_TOKEN, request)
    assert answer.error_code == errors_pb2.NOT_CONTROLLER
    assert not cluster.image.tokens
