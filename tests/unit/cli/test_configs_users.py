"""``quorate configs`` for users: credentials in Kafka's words, and passwords shown nowhere."""

from collections.abc import Sequence

import pytest

from quorate.broker.security.scram import BY_NUMBER, password_fits
from quorate.cli.main import run
from quorate.client import admin as admin_module
from quorate.client.results import QuotaFilter
from quorate.metadata_log.image import ScramKey
from tests.unit.cli.test_users import FakeAdmin


class FakeAdminWithQuotas(FakeAdmin):
    def describe_client_quotas(
        self, filters: Sequence[QuotaFilter], *, strict: bool
    ) -> list[object]:
        return []


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdminWithQuotas:
    fake = FakeAdminWithQuotas()
    monkeypatch.setattr(admin_module, "AdminClient", lambda *_, **__: fake)
    return fake


def configs(*words: str) -> int:
    return run(["configs", "--bootstrap-server", "127.0.0.1:1", "--entity-type", "users", *words])


def test_a_credential_in_kafkas_words(
    admin: FakeAdminWithQuotas, capsys: pytest.CaptureFixture[str]
) -> None:
    value = "SCRAM-SHA-256=[iterations=5000,password=p,w=1],SCRAM-SHA-512=[password=pw]"
    assert configs("--alter", "--entity-name", "alice", "--add-config", value) == 0
    assert capsys.readouterr().out == "Completed updating config for user alice.\n"
    first, second = (admin.image.scram[ScramKey("alice", one)] for one in (1, 2))
    assert (first.iterations, second.iterations) == (5_000, 8_192)
    assert password_fits(BY_NUMBER[1], first, "p,w=1")
    assert password_fits(BY_NUMBER[2], second, "pw")
    assert configs("--describe", "--entity-name", "alice") == 0
    assert capsys.readouterr().out == (
        "SCRAM credential configs for user-principal 'alice' are "
        "SCRAM-SHA-256=iterations=5000,SCRAM-SHA-512=iterations=8192\n"
    )
    assert configs("--alter", "--entity-name", "alice", "--delete-config", "SCRAM-SHA-256") == 0
    assert set(admin.image.scram) == {ScramKey("alice", 2)}


def test_a_password_is_not_shown(
    admin: FakeAdminWithQuotas, capsys: pytest.CaptureFixture[str]
) -> None:
    value = "SCRAM-SHA-256=[password=hidden treasure]"
    assert configs("--alter", "--json", "--entity-name", "alice", "--add-config", value) == 0
    shown = capsys.readouterr()
    assert "treasure" not in shown.out + shown.err
    assert "SCRAM-SHA-256" in shown.out


@pytest.mark.parametrize(
    "words",
    [
        ("--entity-name", "alice", "--add-config", "SCRAM-SHA-256=[iterations=8192]"),
        ("--entity-name", "alice", "--add-config", "SCRAM-SHA-256=[password=]"),
        ("--entity-name", "alice", "--add-config", "SCRAM-SHA-256=[iterations=1,password=x]"),
        ("--entity-default", "--add-config", "SCRAM-SHA-256=[password=x]"),
        ("--add-config", "SCRAM-SHA-256=[password=x]"),
    ],
)
def test_what_is_no_credential_is_wrong_usage(
    admin: FakeAdminWithQuotas, words: tuple[str, ...]
) -> None:
    before = admin.image
    assert configs("--alter", *words) == 2
    assert admin.image is before
