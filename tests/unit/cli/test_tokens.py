"""``quorate tokens``: Kafka's flags and table; a secret is shown where it was asked for only."""

import base64
import io
import json
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from quorate.cli.main import run
from quorate.client import admin
from quorate.client.results import DelegationToken

Asked = list[tuple[Any, ...]]
SECRET = bytes(range(64))
HMAC = base64.b64encode(SECRET).decode()
NOW_MS = 1_593_330_804_078

TOKEN = DelegationToken(
    token_id="0f" * 16,
    owner="User:alice",
    requester="User:gateway",
    renewers=("User:bob", "User:carol"),
    issue_ms=NOW_MS,
    expiry_ms=NOW_MS + 86_400_000,
    max_ms=2**63 - 1,
    hmac=SECRET,
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked: Asked = []

    def create(
        self: admin.AdminClient, *, owner: str, renewers: Sequence[str], max_lifetime_ms: int
    ) -> DelegationToken:
        asked.append((owner, renewers, max_lifetime_ms))
        return TOKEN

    def renew(self: admin.AdminClient, hmac: bytes, *, renew_period_ms: int) -> int:
        asked.append((hmac, renew_period_ms))
        return NOW_MS

    def expire(self: admin.AdminClient, hmac: bytes, *, expiry_time_period_ms: int) -> int:
        asked.append((hmac, expiry_time_period_ms))
        return NOW_MS

    def describe(self: admin.AdminClient, owners: Sequence[str]) -> list[DelegationToken]:
        asked.append((owners,))
        return [TOKEN]

    monkeypatch.setattr(admin.AdminClient, "create_delegation_token", create)
    monkeypatch.setattr(admin.AdminClient, "renew_delegation_token", renew)
    monkeypatch.setattr(admin.AdminClient, "expire_delegation_token", expire)
    monkeypatch.setattr(admin.AdminClient, "describe_delegation_tokens", describe)
    return asked


def tokens(action: str, *arguments: str) -> int:
    return run(["tokens", action, "--bootstrap-server", "127.0.0.1:1", *arguments])


def test_kafkas_flags_are_understood(asked: Asked) -> None:
    renewers = ("--renewer-principal", "User:bob", "--renewer-principal", "User:carol")
    lifetime = ("--max-life-time-period", "86400000")
    assert tokens("create", *lifetime, *renewers, "--owner-principal", "User:alice") == 0
    assert tokens("create", "--max-life-time-period", "-1") == 0
    assert tokens("renew", "--renew-time-period", "-1", "--hmac", HMAC) == 0
    assert tokens("expire", "--expiry-time-period", "5", "--hmac", HMAC) == 0
    assert tokens("describe", "--owner-principal", "User:alice") == 0
    assert asked == [
        ("User:alice", ("User:bob", "User:carol"), 86_400_000),
        ("", (), -1),
        (SECRET, -1),
        (SECRET, 5),
        (("User:alice",),),
    ]


@pytest.mark.usefixtures("asked")
def test_a_new_token_is_shown_in_kafkas_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert tokens("create") == 0
    first, header, row = capsys.readouterr().out.splitlines()
    assert first == f"Created delegation token with tokenId : {TOKEN.token_id}"
    names = "TOKENID HMAC OWNER REQUESTER RENEWERS ISSUEDATE EXPIRYDATE MAXDATE"
    assert header.split() == names.split()
    assert row.split() == [
        TOKEN.token_id,
        HMAC,
        "User:alice",
        "User:gateway",
        "User:bob,User:carol",
        "2020-06-28T07:53",
        "2020-06-29T07:53",
        str(2**63 - 1),
    ]


@pytest.mark.usefixtures("asked")
def test_tokens_and_expiry_dates_as_text_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert tokens("describe") == 0
    assert capsys.readouterr().out.splitlines()[0] == "Total number of tokens : 1"
    assert tokens("describe", "--json") == 0
    (token,) = json.loads(capsys.readouterr().out)
    assert (token["hmac"], token["owner"], token["issue_ms"]) == (HMAC, "User:alice", NOW_MS)
    assert tokens("renew", "--hmac", HMAC) == 0
    renewed = "Completed renew operation. New expiry date : 2020-06-28T07:53"
    assert capsys.readouterr().out.strip() == renewed
    assert tokens("expire", "--hmac", HMAC, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"expiry_ms": NOW_MS}


def test_a_secret_can_come_by_standard_input(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{HMAC}\n"))
    assert tokens("renew", "--hmac", "-") == 0
    assert asked == [(SECRET, -1)]


def test_what_is_no_base64_is_a_usage_error_that_does_not_show_it(
    asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tokens("renew", "--hmac", "not a secret!") == 2
    error = capsys.readouterr().err
    assert "base64" in error
    assert "not a secret" not in error
    assert not asked


def test_a_token_does_not_show_its_secret_by_itself() -> None:
    assert repr(SECRET) not in repr(TOKEN)
    assert HMAC not in repr(TOKEN)
