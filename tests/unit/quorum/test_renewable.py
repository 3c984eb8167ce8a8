"""Certificates that are renewed under a running process."""

from pathlib import Path

import grpc
import pytest

from quorate.common.tls.certificate_authority import CertificateAuthority
from quorate.common.tls.identity import Role, Security
from quorate.common.tls.renewable import LOOK_INTERVAL_S, RenewableSecurity
from quorate.quorum.voter_channels import VoterChannels
from tests.support.quorum_cluster import security_in


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    found = CertificateAuthority.open(tmp_path / "certs")
    found.issue_node(Role.BROKER, 1)
    return found


def watched(authority: CertificateAuthority, clock: Clock) -> RenewableSecurity:
    def load() -> Security:
        return security_in(authority, "broker-1", Role.BROKER)

    return RenewableSecurity(load, clock_s=clock)


def test_a_renewed_certificate_is_used_within_a_second(authority: CertificateAuthority) -> None:
    clock = Clock()
    security = watched(authority, clock)
    before = security.current
    authority.issue_node(Role.BROKER, 1, replace=True)
    assert security.current is before
    clock.now_s += LOOK_INTERVAL_S
    after = security.current
    assert after.chain != before.chain
    clock.now_s += LOOK_INTERVAL_S
    assert security.current is after, "the same object while the files are the same"


@pytest.mark.parametrize("damage", ["another key", "nothing", "gone"])
def test_what_cannot_be_used_leaves_the_last_good_one(
    authority: CertificateAuthority, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    security = watched(authority, clock)
    before = security.current
    keystore = authority.folder / "broker-1.pem"
    if damage == "gone":
        keystore.unlink()
    else:
        keystore.write_bytes(b"" if damage == "nothing" else before.private_key)
    for _ in range(3):
        clock.now_s += LOOK_INTERVAL_S
        assert security.current is before
    assert [record.levelname for record in caplog.records] == ["WARNING"], "said once"
    keystore.unlink(missing_ok=True)
    authority.issue_node(Role.BROKER, 1)
    clock.now_s += LOOK_INTERVAL_S
    assert security.current.chain != before.chain


def test_a_truststore_may_get_a_second_authority(authority: CertificateAuthority) -> None:
    """Half of a change of authority: both are believed until all have new certificates."""
    clock = Clock()
    security = watched(authority, clock)
    other = CertificateAuthority.open(authority.folder.parent / "other")
    with authority.truststore.open("ab") as file:
        file.write(other.truststore.read_bytes())
    clock.now_s += LOOK_INTERVAL_S
    assert security.current.authority.count(b"BEGIN CERTIFICATE") == 2


async def test_the_next_user_gets_a_channel_with_the_renewed_certificate(
    authority: CertificateAuthority,
) -> None:
    """And streams on the old one go on: a session hangs on its keep-alive stream."""
    clock = Clock()
    channels = VoterChannels(watched(authority, clock))
    first, other = channels.get("127.0.0.1:1"), channels.get("127.0.0.1:2")
    assert channels.get("127.0.0.1:1") is first
    authority.issue_node(Role.BROKER, 1, replace=True)
    clock.now_s += LOOK_INTERVAL_S
    second = channels.get("127.0.0.1:1")
    assert second is not first
    assert first.get_state() is grpc.ChannelConnectivity.IDLE, "not closed"
    assert channels.take_all_but({"127.0.0.1:1"}) == [], "replaced ones are closed at the end"
    await channels.close()
    for channel in (first, other, second):
        assert channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN


async def test_channels_to_voters_that_left_are_given_back() -> None:
    channels = VoterChannels(None)
    stays, goes = channels.get("127.0.0.1:1"), channels.get("127.0.0.1:2")
    assert channels.take_all_but({"127.0.0.1:1"}) == [goes]
    assert channels.get("127.0.0.1:1") is stays
    await goes.close()
    await channels.close()
