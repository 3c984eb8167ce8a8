"""The descriptions of delegation tokens, and the clients that see their secrets (KIP-48)."""

import time

import immutables
import msgspec
import pytest

from quorate.broker.kafka.wire.primitives import at_once
from quorate.broker.security.token_access import describe_tokens
from quorate.broker.security.token_secrets import secret_of
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import DelegationTokenSet
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.metadata import MetadataLogBuilder

KEY, OLD = b"the newest key", b"the key before"


@pytest.fixture
def image() -> Image:
    log = MetadataLogBuilder()
    log.start_broker(1)
    log.elect_controller(1)
    for token_id, owner, requester, renewers in (
        ("t2", "User:alice", "User:gateway", ()),
        ("t1", "User:alice", "User:alice", ("User:bob",)),
        ("t3", "User:carol", "User:carol", ()),
    ):
        token = DelegationTokenSet(
            token_id=token_id,
            owner=owner,
            requester=requester,
            renewers=renewers,
            issue_ms=1,
            expiry_ms=2,
            max_ms=3,
        )
        assert log.write_as_controller(token).ok
    return log.image


def request(
    by: str, *owners: str, by_token: bool = False
) -> admin_pb2.DescribeDelegationTokensRequest:
    context = admin_pb2.RequestContext(principal_name=by, token_authenticated=by_token)
    return admin_pb2.DescribeDelegationTokensRequest(context=context, owners=owners)


@pytest.mark.parametrize(
    ("by", "owners", "token_ids"),
    [
        ("User:alice", (), ["t1", "t2"]),
        ("User:bob", (), ["t1"]),
        ("User:gateway", (), ["t2"]),
        ("User:mallory", (), []),
        ("User:alice", ("User:gateway",), ["t2"]),
        ("User:alice", ("User:carol",), []),
        ("User:alice", ("User:carol", "User:alice"), ["t1", "t2"]),
    ],
)
def test_one_sees_ones_own_tokens(
    image: Image, by: str, owners: tuple[str, ...], token_ids: list[str]
) -> None:
    answer = at_once(describe_tokens(image, request(by, *owners), (KEY, OLD), lambda *_: False))
    assert [one.token_id for one in answer.tokens] == token_ids
    assert all(one.hmac == secret_of(KEY, one.token_id) for one in answer.tokens)


def test_who_may_see_others_tokens_is_not_told_their_secrets(image: Image) -> None:
    answer = at_once(
        describe_tokens(image, request("User:bob"), (KEY,), lambda token_id, _: token_id != "t2")
    )
    assert [(one.token_id, bool(one.hmac)) for one in answer.tokens] == [
        ("t1", True),
        ("t3", False),
    ]


@pytest.mark.parametrize(
    "asked",
    [request(""), request("User:ANONYMOUS"), request("User:alice", by_token=True)],
)
def test_only_who_has_shown_who_they_are_sees_any(
    image: Image, asked: admin_pb2.DescribeDelegationTokensRequest
) -> None:
    answer = at_once(describe_tokens(image, asked, (KEY,)))
    assert answer.error_code == errors_pb2.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert not answer.tokens


def test_without_a_key_there_is_nothing_to_see(image: Image) -> None:
    answer = at_once(describe_tokens(image, request("User:alice"), ()))
    assert answer.error_code == errors_pb2.DELEGATION_TOKEN_AUTH_DISABLED
    assert not answer.tokens


def test_many_owners_take_no_longer_than_their_number(image: Image) -> None:
    tokens = immutables.Map({f"t{number}": image.tokens["t3"] for number in range(300)})
    many = msgspec.structs.replace(image, tokens=tokens)
    owners = [f"User:u{number}" for number in range(100_000)]
    began = time.process_time()
    assert not at_once(describe_tokens(many, request("User:mallory", *owners), (KEY,))).tokens
    assert time.process_time() - began < 2, "not once per owner and token"
