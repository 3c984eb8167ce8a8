"""Certificates: what is made, what is refused, who may do what."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.common.configuration import ConfigError
from quorate.common.tls.certificate_authority import CertificateAuthority
from quorate.common.tls.identity import (
    CLIENT_METHODS,
    VOTER_METHODS,
    Principal,
    Role,
    Security,
    SecurityError,
    may_call,
    node_name,
    role_name,
)
from quorate.common.tls.keystore import load_security, require_node
from quorate.common.tls.tls_config import (
    VOTER_SECURITY,
    command_security,
    is_loopback,
    require_loopback,
)
from quorate.common.types import Endpoint


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority.open(tmp_path / "certs")


def load(authority: CertificateAuthority, stem: str, role: Role = Role.VOTER) -> Security:
    keystore = authority.folder / f"{stem}.pem"
    return load_security("keystore", keystore, "truststore", authority.truststore, role)


def principal(*names: str) -> Principal:
    return Principal(frozenset(names))


# --- what is made ---------------------------------------------------------------------------------


def test_a_node_is_who_its_certificate_names(authority: CertificateAuthority) -> None:
    assert authority.issue_node(Role.VOTER, 7)
    found = load(authority, "voter-7").principal
    assert found.is_node(Role.VOTER, 7)
    assert found.names == {"voter-7.quorate", "voter.quorate"}
    assert not found.is_node(Role.VOTER, 8)
    assert not found.is_node(Role.BROKER, 7)


def test_private_keys_are_for_their_owner_alone(authority: CertificateAuthority) -> None:
    authority.issue_node(Role.BROKER, 1)
    authority.issue_node(Role.BROKER, 1, replace=True)
    for name in ("ca-key.pem", "broker-1.pem"):
        assert stat.S_IMODE((authority.folder / name).stat().st_mode) == 0o600


def test_what_is_there_is_kept_unless_it_is_to_be_replaced(authority: CertificateAuthority) -> None:
    authority.issue_node(Role.VOTER, 1)
    before = (authority.folder / "voter-1.pem").read_bytes()
    assert not authority.issue_node(Role.VOTER, 1)
    assert (authority.folder / "voter-1.pem").read_bytes() == before
    assert authority.issue_node(Role.VOTER, 1, replace=True)
    assert (authority.folder / "voter-1.pem").read_bytes() != before


def test_the_authority_is_the_same_when_opened_again(authority: CertificateAuthority) -> None:
    authority.issue_node(Role.VOTER, 1)
    CertificateAuthority.open(authority.folder).issue_node(Role.VOTER, 2)
    assert load(authority, "voter-1").authority == load(authority, "voter-2").authority


def test_half_an_authority_is_refused(authority: CertificateAuthority) -> None:
    (authority.folder / "ca-key.pem").unlink()
    with pytest.raises(SecurityError, match=r"ca-key\.pem is missing"):
        CertificateAuthority.open(authority.folder)


def test_another_key_is_not_the_authoritys(authority: CertificateAuthority, tmp_path: Path) -> None:
    other = CertificateAuthority.open(tmp_path / "other")
    (other.folder / "ca-key.pem").replace(authority.folder / "ca-key.pem")
    with pytest.raises(SecurityError, match="is not the key of"):
        CertificateAuthority.open(authority.folder)


# --- what is refused, and says what to do ---------------------------------------------------------


def test_a_missing_keystore_is_named(authority: CertificateAuthority) -> None:
    with pytest.raises(SecurityError, match=r"voter-1\.pem: No such file.*quorate certs"):
        load(authority, "voter-1")


def replaced(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


BEGIN_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda pem: b"nonsense", "no certificate in PEM form"),
        (lambda pem: pem[: pem.index(BEGIN_CERTIFICATE)], "no certificate in PEM form"),
        (lambda pem: pem[pem.index(BEGIN_CERTIFICATE) :], "no private key in PEM form"),
        (lambda pem: pem[:200], "PEM form"),
    ],
)
def test_a_malformed_keystore_is_refused(
    authority: CertificateAuthority, change: Callable[[bytes], bytes], named: str
) -> None:
    authority.issue_node(Role.VOTER, 1)
    replaced(authority.folder / "voter-1.pem", change)
    with pytest.raises(SecurityError, match=named):
        load(authority, "voter-1")


def test_a_key_of_another_certificate_is_refused(authority: CertificateAuthority) -> None:
    authority.issue_node(Role.VOTER, 1)
    authority.issue_node(Role.VOTER, 2)
    second = (authority.folder / "voter-2.pem").read_bytes()
    certificate = second[second.index(BEGIN_CERTIFICATE) :]
    replaced(
        authority.folder / "voter-1.pem",
        lambda pem: pem[: pem.index(BEGIN_CERTIFICATE)] + certificate,
    )
    with pytest.raises(SecurityError, match="does not belong to the first certificate"):
        load(authority, "voter-1")


def test_an_expired_certificate_says_when_and_what_to_do(authority: CertificateAuthority) -> None:
    authority.issue_node(Role.VOTER, 1, days=0)
    with pytest.raises(SecurityError, match=r"expired on 20.*quorate certs --renew"):
        load(authority, "voter-1")


def test_a_certificate_of_another_authority_is_refused(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    other = CertificateAuthority.open(tmp_path / "other")
    other.issue_node(Role.VOTER, 1)
    with pytest.raises(SecurityError, match="was not signed by the authority in truststore="):
        load_security(
            "keystore", other.folder / "voter-1.pem", "truststore", authority.truststore, Role.VOTER
        )


def test_another_roles_certificate_is_refused(authority: CertificateAuthority) -> None:
    authority.issue_node(Role.BROKER, 1)
    with pytest.raises(SecurityError, match=r"one with the name voter\.quorate is needed"):
        load(authority, "broker-1")


def test_another_nodes_certificate_is_refused(authority: CertificateAuthority) -> None:
    authority.issue_node(Role.VOTER, 1)
    with pytest.raises(SecurityError, match=r"of voter-1\.quorate.*not of voter 2"):
        require_node(load(authority, "voter-1"), "keystore", Role.VOTER, 2)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused(authority: CertificateAuthority, mode: int) -> None:
    authority.issue_node(Role.VOTER, 1)
    os.chmod(authority.folder / "voter-1.pem", mode)
    with pytest.raises(SecurityError, match=f"has mode {mode:04o}.*chmod 600"):
        load(authority, "voter-1")


def test_a_key_that_a_group_can_read_is_taken(authority: CertificateAuthority) -> None:
    authority.issue_node(Role.VOTER, 1)
    os.chmod(authority.folder / "voter-1.pem", 0o640)
    load(authority, "voter-1")


# --- who may do what ------------------------------------------------------------------------------


def test_brokers_do_what_clients_do_and_nothing_else() -> None:
    broker = principal(role_name(Role.BROKER), node_name(Role.BROKER, 1))
    for method in CLIENT_METHODS:
        assert may_call(broker, method)
    for method in ("AddVoter", "RemoveVoter", "TransferLeadership", "WhateverComesNext"):
        assert not may_call(broker, method)
        assert may_call(principal(role_name(Role.ADMIN)), method)


def test_a_voter_passes_calls_on_and_nothing_else() -> None:
    voter = principal(role_name(Role.VOTER), node_name(Role.VOTER, 1))
    for method in VOTER_METHODS:
        assert may_call(voter, method)
    for method in ("Transact", "KeepAlive", "Watch", "AddVoter", "WhateverComesNext"):
        assert not may_call(voter, method)


def test_a_certificate_of_no_role_may_do_nothing() -> None:
    for names in (
        (),
        ("localhost",),
        ("broker-1.quorate",),
        ("xbroker.quorate",),
        ("broker.quorate",),
    ):
        for method in (*CLIENT_METHODS, "AddVoter"):
            assert not may_call(principal(*names), method)


def test_a_node_needs_its_role_and_its_own_name() -> None:
    assert not principal("voter-1.quorate").is_node(Role.VOTER, 1)
    assert not principal("voter.quorate").is_node(Role.VOTER, 1)
    assert not principal("voter.quorate", "voter-11.quorate").is_node(Role.VOTER, 1)


# --- configuration --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("127.0.0.1.example", False),
    ],
)
def test_loopback_is_what_cannot_leave_the_machine(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_plain_text_names_the_address_that_leaves_the_machine() -> None:
    with pytest.raises(ConfigError, match=r"quorum\.voters names 10\.0\.0\.1: use SSL"):
        require_loopback(
            VOTER_SECURITY, "quorum.voters", [Endpoint("127.0.0.1", 1), Endpoint("10.0.0.1", 1)]
        )


@pytest.mark.parametrize("name", ["admin.toml", "admin.properties"])
def test_a_command_configuration_has_kafkas_keys(
    authority: CertificateAuthority, tmp_path: Path, name: str
) -> None:
    authority.issue_admin("alice")
    quote = '"' if name.endswith("toml") else ""
    path = tmp_path / name
    path.write_text(
        "# of alice\n"
        f"ssl.keystore.location = {quote}{authority.folder / 'alice.pem'}{quote}\n"
        f"ssl.truststore.location = {quote}{authority.truststore}{quote}\n"
    )
    security = command_security(path)
    assert security is not None
    assert security.principal.common_name == "alice"
    path.write_text(f"security.protocol = {quote}PLAINTEXT{quote}\n")
    assert command_security(path) is None


def test_a_command_configuration_without_files_says_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "admin.properties"
    path.write_text("security.protocol=SSL\n")
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location is missing"):
        command_security(path)
    path.write_text("nonsense\n")
    with pytest.raises(ConfigError, match="line 1: must be key=value"):
        command_security(path)
