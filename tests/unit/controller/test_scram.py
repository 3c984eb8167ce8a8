"""SCRAM credentials decided: all changes of a user or none, and only what can be one (KIP-554)."""

import time

import pytest

from quorate.broker.controller.managers import scram_manager
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.kafka.wire.primitives import at_once
from quorate.broker.security.scram import BY_NUMBER, password_fits, salted_password
from quorate.broker.security.scram_users import describe_users
from quorate.common.types import BrokerId, ControllerEpoch
from quorate.metadata_log.image import Image, ScramKey
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.metadata import MetadataLogBuilder

TENURE = ControllerTenure(BrokerId(1), ControllerEpoch(1))


class World:
    """A metadata log to which decisions are applied."""

    def __init__(self) -> None:
        self.log = MetadataLogBuilder()
        self.log.start_broker(1)
        self.log.elect_controller(1)

    @property
    def image(self) -> Image:
        return self.log.image

    def alter(
        self, *changes: admin_pb2.ScramUpsertion | admin_pb2.ScramDeletion
    ) -> list[tuple[str, int]]:
        request = admin_pb2.AlterUserScramCredentialsRequest(
            upsertions=[one for one in changes if isinstance(one, admin_pb2.ScramUpsertion)],
            deletions=[one for one in changes if isinstance(one, admin_pb2.ScramDeletion)],
        )
        decisions = scram_manager.alter(self.image, request, tenure=TENURE)
        for decision in decisions:
            if decision.operation is not None:
                assert self.log.transact(decision.operation).ok
        return [(one.result.user, one.result.error_code) for one in decisions]


@pytest.fixture
def world() -> World:
    return World()


def upsertion(
    user: str = "alice", mechanism: int = 1, password: str = "secret", iterations: int = 4_096
) -> admin_pb2.ScramUpsertion:
    salted = salted_password(BY_NUMBER.get(mechanism, BY_NUMBER[1]), password, b"salt", 4_096)
    return admin_pb2.ScramUpsertion(
        user=user,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=salted,
    )


def deletion(user: str = "alice", mechanism: int = 1) -> admin_pb2.ScramDeletion:
    return admin_pb2.ScramDeletion(user=user, mechanism=mechanism)


def changed(**fields: bytes | int) -> admin_pb2.ScramUpsertion:
    made = upsertion()
    made.MergeFrom(admin_pb2.ScramUpsertion(**fields))  # type: ignore[arg-type]
    return made


def test_f3_a_user_is_added_changed_and_removed(world: World) -> None:
    assert world.alter(upsertion(), upsertion(mechanism=2), upsertion("bob")) == [
        ("alice", 0),
        ("bob", 0),
    ]
    for mechanism in BY_NUMBER.values():
        stored = world.image.scram[ScramKey("alice", mechanism.number)]
        assert password_fits(mechanism, stored, "secret")
    assert world.alter(upsertion(password="other")) == [("alice", 0)]
    assert password_fits(BY_NUMBER[1], world.image.scram[ScramKey("alice", 1)], "other")
    assert world.alter(deletion(), deletion("bob"), upsertion("carol")) == [
        ("alice", 0),
        ("bob", 0),
        ("carol", 0),
    ]
    assert set(world.image.scram) == {ScramKey("alice", 2), ScramKey("carol", 1)}


def test_the_salted_password_is_not_kept(world: World) -> None:
    """It would be as good as the password."""
    sent = upsertion()
    world.alter(sent)
    (stored,) = world.image.scram.values()
    assert sent.salted_password not in (stored.stored_key, stored.server_key, stored.salt)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(""), errors_pb2.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ANONYMOUS"), errors_pb2.UNACCEPTABLE_CREDENTIAL),
        (upsertion("quorate-cluster-admin"), errors_pb2.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=0), errors_pb2.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(mechanism=3), errors_pb2.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(mechanism=-1), errors_pb2.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(iterations=4_095), errors_pb2.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16_385), errors_pb2.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=-1), errors_pb2.UNACCEPTABLE_CREDENTIAL),
        (changed(salted_password=b"short"), errors_pb2.UNACCEPTABLE_CREDENTIAL),
        (changed(mechanism=2), errors_pb2.UNACCEPTABLE_CREDENTIAL),
        (
            admin_pb2.ScramUpsertion(
                user="alice", mechanism=1, iterations=4_096, salted_password=bytes(32)
            ),
            errors_pb2.UNACCEPTABLE_CREDENTIAL,
        ),
        (deletion(""), errors_pb2.UNACCEPTABLE_CREDENTIAL),
        (deletion(mechanism=7), errors_pb2.UNSUPPORTED_SASL_MECHANISM),
        (deletion("ghost"), errors_pb2.RESOURCE_NOT_FOUND),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    world: World, change: admin_pb2.ScramUpsertion | admin_pb2.ScramDeletion, code: int
) -> None:
    before = world.image
    assert world.alter(change) == [(change.user, code)]
    assert world.image is before


def test_one_bad_change_spoils_that_users_others_alone(world: World) -> None:
    results = world.alter(upsertion(), deletion(mechanism=2), upsertion("bob"))
    assert dict(results) == {"alice": errors_pb2.RESOURCE_NOT_FOUND, "bob": 0}
    assert set(world.image.scram) == {ScramKey("bob", 1)}


def test_a_credential_is_changed_once_in_a_request(world: World) -> None:
    world.alter(upsertion())
    for again in (upsertion(password="b"), deletion()):
        results = world.alter(upsertion(password="a"), again)
        assert results == [("alice", errors_pb2.DUPLICATE_RESOURCE)]
    assert password_fits(BY_NUMBER[1], world.image.scram[ScramKey("alice", 1)], "secret")


def test_what_is_told_of_users_is_no_secret(world: World) -> None:
    world.alter(upsertion("bob", 2, iterations=5_000), upsertion("alice"), upsertion("alice", 2))
    told = at_once(describe_users(world.image, []))
    assert [
        (user.user, [(one.mechanism, one.iterations) for one in user.credentials])
        for user in told.users
    ] == [("alice", [(1, 4_096), (2, 4_096)]), ("bob", [(2, 5_000)])]
    wire = told.SerializeToString()
    for stored in world.image.scram.values():
        for secret in (stored.salt, stored.stored_key, stored.server_key):
            assert secret not in wire


def test_users_are_asked_for_by_name_once(world: World) -> None:
    world.alter(upsertion("alice"), upsertion("bob"))
    told = at_once(describe_users(world.image, ["bob", "ghost", "alice", "alice"]))
    assert [(one.user, one.error_code, len(one.credentials)) for one in told.users] == [
        ("alice", errors_pb2.DUPLICATE_RESOURCE, 0),
        ("bob", errors_pb2.NONE, 1),
        ("ghost", errors_pb2.RESOURCE_NOT_FOUND, 0),
    ]


def test_many_users_take_the_controller_no_longer_than_their_number(world: World) -> None:
    many = [f"u{number}" for number in range(10_000)]
    began = time.process_time()
    answer = world.alter(*(deletion(user) for user in many))
    told = at_once(describe_users(world.image, many))
    assert time.process_time() - began < 4, "not the square of their number"
    assert len(answer) == len(told.users) == len(many)
