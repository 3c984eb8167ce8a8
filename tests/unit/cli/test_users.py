"""``quorate users``: passwords stay in the command, and each user is answered for."""

import io
import json
from pathlib import Path

import pytest

from quorate.broker.controller.managers import scram_manager
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.kafka.wire.primitives import at_once
from quorate.broker.security.scram import BY_NUMBER, password_fits
from quorate.broker.security.scram_users import describe_users
from quorate.cli.main import run
from quorate.client import admin as admin_module
from quorate.client.call_steps import ToAnyBroker, ToController
from quorate.client.calls import user_calls as users
from quorate.client.results import ScramDeletion, ScramResult, ScramUpsertion, ScramUser
from quorate.common.types import BrokerId, ControllerEpoch
from quorate.metadata_log.image import Image, ScramKey
from tests.support.metadata import MetadataLogBuilder


class FakeAdmin:
    """Carries the calls out on a metadata log of its own."""

    def __init__(self) -> None:
        self.log = MetadataLogBuilder()
        self.log.start_broker(1)
        self.log.elect_controller(1)
        self.sent = b""

    @property
    def image(self) -> Image:
        return self.log.image

    def alter_user_scram_credentials(
        self, changes: list[ScramUpsertion | ScramDeletion]
    ) -> list[ScramResult]:
        steps = users.alter_user_scram_credentials(changes)
        question = next(steps)
        assert isinstance(question, ToController)
        self.sent += question.request.SerializeToString()
        tenure = ControllerTenure(BrokerId(1), ControllerEpoch(1))
        decisions = scram_manager.alter(self.image, question.request, tenure=tenure)  # type: ignore[arg-type]
        for one in decisions:
            if one.operation is not None:
                assert self.log.transact(one.operation).ok
        return [ScramResult.from_proto(one.result) for one in decisions]

    def describe_user_scram_credentials(self, names: tuple[str, ...] = ()) -> list[ScramUser]:
        steps = users.describe_user_scram_credentials(names)
        question = next(steps)
        assert isinstance(question, ToAnyBroker)
        try:
            steps.send(at_once(describe_users(self.image, list(question.request.users))))  # type: ignore[attr-defined]
        except StopIteration as ended:
            found: list[ScramUser] = ended.value
            return found
        raise AssertionError

    def __enter__(self) -> "FakeAdmin":
        return self

    def __exit__(self, *exc_info: object) -> None:
        return


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    fake = FakeAdmin()
    monkeypatch.setattr(admin_module, "AdminClient", lambda *_, **__: fake)
    return fake


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("pa ss\nsecond line\n")
    return path


def quorate_users(*words: str | Path) -> int:
    return run(["users", *map(str, words), "--bootstrap-server", "127.0.0.1:1"])


def fits(admin: FakeAdmin, password: str, *mechanisms: int) -> bool:
    stored = [admin.image.scram[ScramKey("alice", one)] for one in mechanisms]
    return all(
        password_fits(BY_NUMBER[number], one, password)
        for number, one in zip(mechanisms, stored, strict=True)
    )


def test_a_user_from_beginning_to_end(
    admin: FakeAdmin, password: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert quorate_users("add", "alice", "--password-file", password) == 0
    assert capsys.readouterr().out == "Added user 'alice'\n"
    assert fits(admin, "pa ss", 1, 2)
    assert quorate_users("list") == 0
    assert capsys.readouterr().out == (
        "alice  SCRAM-SHA-256 (8192 iterations), SCRAM-SHA-512 (8192 iterations)\n"
    )
    password.write_text("new")
    chosen = ("--mechanism", "SCRAM-SHA-256", "--iterations", "4096")
    assert quorate_users("alter", "alice", "--password-file", password, *chosen) == 0
    assert fits(admin, "new", 1)
    assert fits(admin, "pa ss", 2)
    assert quorate_users("delete", "alice", "--mechanism", "SCRAM-SHA-512") == 0
    capsys.readouterr()
    assert quorate_users("describe", "alice", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [
        {"user": "alice", "iterations": {"SCRAM-SHA-256": 4_096}}
    ]
    assert quorate_users("delete", "alice") == 0
    assert not admin.image.scram


def test_the_password_does_not_leave_the_command(
    admin: FakeAdmin, password: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    quorate_users("add", "alice", "--password-file", password)
    assert b"pa ss" not in admin.sent
    shown = capfd.readouterr()
    assert "pa ss" not in shown.out + shown.err
    made = ScramUpsertion.of_password("alice", "SCRAM-SHA-256", "pa ss", 4_096)
    assert made.salted_password.hex() not in repr(made)
    assert repr(made) == "ScramUpsertion(user='alice', mechanism='SCRAM-SHA-256')"


def test_a_password_may_come_by_standard_input(
    admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("piped\n"))
    assert quorate_users("add", "alice", "--password-file", "-") == 0
    assert fits(admin, "piped", 1, 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "alice"), "there is a user 'alice' already"),
        (("alter", "ghost"), "there is no user 'ghost'"),
        (("add", "ANONYMOUS"), "'ANONYMOUS' is no user's name"),
    ],
)
def test_refusals_are_one_line(
    admin: FakeAdmin,
    password: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    said: str,
) -> None:
    quorate_users("add", "alice", "--password-file", password)
    before = admin.image
    capsys.readouterr()
    assert quorate_users(*words, "--password-file", password) == 1
    assert said in capsys.readouterr().err
    assert admin.image is before


def test_nobody_to_ask_and_nothing_to_read_are_said(
    admin: FakeAdmin,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert quorate_users("add", "alice") == 2
    assert "give --password-file" in capsys.readouterr().err
    empty = tmp_path / "empty"
    empty.write_text("\n")
    assert quorate_users("add", "alice", "--password-file", empty) == 1
    assert "is empty" in capsys.readouterr().err
    for name in ("delete", "describe"):
        assert quorate_users(name, "ghost") == 1
    assert not admin.image.scram
