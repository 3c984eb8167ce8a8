"""Delegation tokens decided: who may do what with which, and until when one lives (KIP-48)."""

from collections.abc import Callable
from functools import partial

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.controller.managers import token_manager
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.token_manager import Lifetimes, TokenDecision
from quorate.broker.security.token_access import requester_of
from quorate.common.types import BrokerId, ControllerEpoch
from quorate.metadata_log.image import Image
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.metadata import MetadataLogBuilder

TENURE = ControllerTenure(BrokerId(1), ControllerEpoch(1))
HOUR_MS = 3_600_000
LIFETIMES = Lifetimes(max_lifetime_ms=10 * HOUR_MS, expiry_time_ms=2 * HOUR_MS)
NOW_MS = 1_000_000_000_000
LARGEST = 2**63 - 1


class World:
    """A metadata log to which decisions are applied."""

    def __init__(self) -> None:
        self.log = MetadataLogBuilder()
        self.log.start_broker(1)
        self.log.elect_controller(1)

    @property
    def image(self) -> Image:
        return self.log.image

    def apply(self, decision: TokenDecision) -> TokenDecision:
        assert self.log.transact(decision.operation).ok
        return decision

    def create(
        self,
        by: str = "User:alice",
        *,
        owner: str = "",
        renewers: tuple[str, ...] = (),
        max_lifetime_ms: int = -1,
        token_id: str = "t1",
    ) -> TokenDecision:
        request = admin_pb2.CreateDelegationTokenRequest(
            context=context(by), owner=owner, renewers=renewers, max_lifetime_ms=max_lifetime_ms
        )
        return self.apply(
            token_manager.create(
                request, tenure=TENURE, now_ms=NOW_MS, token_id=token_id, lifetimes=LIFETIMES
            )
        )

    def renew(
        self,
        by: str = "User:alice",
        *,
        period_ms: int = -1,
        now_ms: int = NOW_MS,
        token_id: str | None = "t1",
    ) -> TokenDecision:
        request = admin_pb2.RenewDelegationTokenRequest(
            context=context(by), renew_period_ms=period_ms
        )
        return self.apply(
            token_manager.renew(
                self.image,
                request,
                tenure=TENURE,
                now_ms=now_ms,
                token_id=token_id,
                lifetimes=LIFETIMES,
            )
        )

    def expire(
        self,
        by: str = "User:alice",
        *,
        period_ms: int = -1,
        now_ms: int = NOW_MS,
        token_id: str | None = "t1",
    ) -> TokenDecision:
        request = admin_pb2.ExpireDelegationTokenRequest(
            context=context(by), expiry_time_period_ms=period_ms
        )
        return self.apply(
            token_manager.expire(
                self.image, request, tenure=TENURE, now_ms=now_ms, token_id=token_id
            )
        )


def context(principal: str, *, by_token: bool = False) -> admin_pb2.RequestContext:
    return admin_pb2.RequestContext(principal_name=principal, token_authenticated=by_token)


@pytest.fixture
def world() -> World:
    return World()


def refused(code: int, work: Callable[[], object]) -> str:
    with pytest.raises(KafkaError) as raised:
        work()
    assert raised.value.code == code
    return raised.value.message


# --- making -------------------------------------------------------------------------------------


def test_a_new_token_is_its_makers_and_lives_as_the_cluster_says(world: World) -> None:
    token = world.create(renewers=("User:bob", "User:bob")).token
    assert (token.owner, token.requester, token.renewers) == (
        "User:alice",
        "User:alice",
        ("User:bob",),
    )
    assert token.issue_ms == NOW_MS
    assert token.expiry_ms == NOW_MS + 2 * HOUR_MS
    assert token.max_ms == NOW_MS + 10 * HOUR_MS
    assert world.image.tokens["t1"].owner == "User:alice"


def test_a_token_can_be_made_for_somebody_else(world: World) -> None:
    """KIP-373."""
    token = world.create("User:gateway", owner="User:alice").token
    assert (token.owner, token.requester) == ("User:alice", "User:gateway")


@pytest.mark.parametrize(
    ("wanted_ms", "lives_ms"),
    [
        (HOUR_MS, HOUR_MS),
        (1, 1),
        (11 * HOUR_MS, 10 * HOUR_MS),
        (LARGEST, 10 * HOUR_MS),
        (0, 10 * HOUR_MS),
        (-1, 10 * HOUR_MS),
        (-LARGEST - 1, 10 * HOUR_MS),
    ],
)
def test_a_lifetime_is_cut_to_what_is_allowed(world: World, wanted_ms: int, lives_ms: int) -> None:
    token = world.create(max_lifetime_ms=wanted_ms).token
    assert token.max_ms == NOW_MS + lives_ms
    assert token.expiry_ms == NOW_MS + min(lives_ms, 2 * HOUR_MS)


def test_the_largest_lifetimes_do_not_overflow(world: World) -> None:
    forever = Lifetimes(max_lifetime_ms=LARGEST, expiry_time_ms=LARGEST)
    request = admin_pb2.CreateDelegationTokenRequest(
        context=context("User:alice"), max_lifetime_ms=LARGEST
    )
    decision = token_manager.create(
        request, tenure=TENURE, now_ms=NOW_MS, token_id="t1", lifetimes=forever
    )
    token = world.apply(decision).token
    assert (token.expiry_ms, token.max_ms) == (LARGEST, LARGEST)
    renewal = admin_pb2.RenewDelegationTokenRequest(
        context=context("User:alice"), renew_period_ms=LARGEST
    )
    renewed = token_manager.renew(
        world.image,
        renewal,
        tenure=TENURE,
        now_ms=NOW_MS + HOUR_MS,
        token_id="t1",
        lifetimes=forever,
    )
    assert world.apply(renewed).token.expiry_ms == LARGEST
    assert world.expire(period_ms=LARGEST).token.expiry_ms == LARGEST


@pytest.mark.parametrize("principal", ["Group:admins", "alice", "User:", "user:alice", ""])
def test_only_users_own_and_renew(world: World, principal: str) -> None:
    refused(errors_pb2.INVALID_PRINCIPAL_TYPE, lambda: world.create(renewers=(principal,)))
    if principal:
        refused(errors_pb2.INVALID_PRINCIPAL_TYPE, lambda: world.create(owner=principal))
    assert not world.image.tokens


@pytest.mark.parametrize(
    "asker",
    [context(""), context("User:ANONYMOUS"), context("User:alice", by_token=True)],
)
def test_tokens_are_for_those_who_have_shown_who_they_are(
    world: World, asker: admin_pb2.RequestContext
) -> None:
    world.create()
    not_allowed = errors_pb2.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    refused(not_allowed, lambda: requester_of(asker))
    create = admin_pb2.CreateDelegationTokenRequest(context=asker)
    refused(
        not_allowed,
        lambda: token_manager.create(
            create, tenure=TENURE, now_ms=NOW_MS, token_id="t2", lifetimes=LIFETIMES
        ),
    )
    renew = admin_pb2.RenewDelegationTokenRequest(context=asker)
    refused(
        not_allowed,
        lambda: token_manager.renew(
            world.image,
            renew,
            tenure=TENURE,
            now_ms=NOW_MS,
            token_id="t1",
            lifetimes=LIFETIMES,
        ),
    )
    expire = admin_pb2.ExpireDelegationTokenRequest(context=asker)
    refused(
        not_allowed,
        lambda: token_manager.expire(
            world.image, expire, tenure=TENURE, now_ms=NOW_MS, token_id="t1"
        ),
    )


@pytest.mark.parametrize("by", ["User:alice", "User:mallory"])
def test_an_id_is_given_once(world: World, by: str) -> None:
    world.create()
    again = token_manager.create(
        admin_pb2.CreateDelegationTokenRequest(context=context(by)),
        tenure=TENURE,
        now_ms=NOW_MS,
        token_id="t1",
        lifetimes=LIFETIMES,
    )
    assert not world.log.transact(again.operation).ok
    assert world.image.tokens["t1"].owner == "User:alice"


# --- renewing and ending ------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["User:alice", "User:gateway", "User:bob"])
def test_owner_requester_and_renewers_renew_and_end(world: World, by: str) -> None:
    world.create("User:gateway", owner="User:alice", renewers=("User:bob",))
    later = NOW_MS + HOUR_MS
    assert world.renew(by, now_ms=later).token.expiry_ms == later + 2 * HOUR_MS
    assert world.expire(by, period_ms=5, now_ms=later).token.expiry_ms == later + 5
    assert world.expire(by, now_ms=later).token.expiry_ms == later
    assert not world.image.tokens


def test_a_stranger_neither_renews_nor_ends(world: World) -> None:
    world.create(renewers=("User:bob",))
    before = world.image.tokens
    for work in (world.renew, world.expire):
        message = refused(errors_pb2.DELEGATION_TOKEN_OWNER_MISMATCH, partial(work, "User:mallory"))
        assert "User:mallory" in message
    assert world.image.tokens == before


@pytest.mark.parametrize("token_id", [None, "t2"])
def test_a_secret_of_no_token_is_not_found(world: World, token_id: str | None) -> None:
    world.create()
    for work in (world.renew, world.expire):
        refused(errors_pb2.DELEGATION_TOKEN_NOT_FOUND, partial(work, token_id=token_id))


@pytest.mark.parametrize(
    ("period_ms", "lives_ms"),
    [
        (5, 5),
        (3 * HOUR_MS, 2 * HOUR_MS),
        (LARGEST, 2 * HOUR_MS),
        (0, 2 * HOUR_MS),
        (-1, 2 * HOUR_MS),
        (-LARGEST - 1, 2 * HOUR_MS),
    ],
)
def test_a_renewal_is_cut_to_what_is_allowed(world: World, period_ms: int, lives_ms: int) -> None:
    world.create()
    assert world.renew(period_ms=period_ms).token.expiry_ms == NOW_MS + lives_ms


def test_no_renewal_and_no_expiry_goes_beyond_the_tokens_maximum(world: World) -> None:
    world.create()
    maximum = world.image.tokens["t1"].max_ms
    for now in range(NOW_MS, maximum, HOUR_MS):
        world.renew(now_ms=now)
    assert world.image.tokens["t1"].expiry_ms == maximum
    assert world.expire(period_ms=LARGEST, now_ms=maximum).token.expiry_ms == maximum


def test_an_ended_token_is_not_renewed_but_may_be_removed(world: World) -> None:
    world.create(max_lifetime_ms=HOUR_MS)
    late = NOW_MS + HOUR_MS + 1
    expired = errors_pb2.DELEGATION_TOKEN_EXPIRED
    assert "t1" in refused(expired, lambda: world.renew(now_ms=late))
    refused(expired, lambda: world.expire(period_ms=HOUR_MS, now_ms=late))
    world.expire(period_ms=-1, now_ms=late)
    assert not world.image.tokens


def test_a_controller_whose_clock_is_behind_the_issue_ends_a_token_at_its_issue(
    world: World,
) -> None:
    world.create()
    assert world.expire(period_ms=0, now_ms=NOW_MS - HOUR_MS).token.expiry_ms == NOW_MS


def test_what_has_ended_is_removed_and_what_was_renewed_meanwhile_stays(world: World) -> None:
    for number in (1, 2, 3):
        world.create(token_id=f"t{number}")
    world.expire(period_ms=HOUR_MS, token_id="t1")
    world.expire(period_ms=HOUR_MS, token_id="t2")
    removals = token_manager.removals(world.image, tenure=TENURE, now_ms=NOW_MS + HOUR_MS + 1)
    assert len(removals) == 2
    world.renew(token_id="t2", now_ms=NOW_MS + HOUR_MS)
    result = world.log.transact(*removals, atomic=False)
    assert [one.ok for one in result.results] == [True, False]
    assert sorted(world.image.tokens) == ["t2", "t3"]
