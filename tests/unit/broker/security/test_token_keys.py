"""Keys of delegation tokens: several at once, changes without a restart, and malformed files."""

import logging
from pathlib import Path

import pytest

from quorate.broker.config.spec import BROKER_SPEC
from quorate.broker.config.tokens import DELEGATION_TOKEN_SECRET_KEY
from quorate.broker.security.token_secrets import KeyFileError, TokenKeys, parse_keys


def test_f1_there_are_no_tokens_without_a_key() -> None:
    assert TokenKeys("", "")() == ()
    assert TokenKeys("one", "")() == (b"one",)


def test_a_key_is_a_secret() -> None:
    assert DELEGATION_TOKEN_SECRET_KEY.sensitive
    assert BROKER_SPEC.key("delegation.token.secret.key") is DELEGATION_TOKEN_SECRET_KEY


def test_keys_of_a_file_come_first_and_in_order(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# newest first\nnew key\n\n  old  \n")
    assert TokenKeys("configured", str(file))() == (b"new key", b"old", b"configured")
    assert TokenKeys("old", str(file))() == (b"new key", b"old"), "one that is there already"


def test_a_changed_file_is_read_again_without_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("old")
    keys = TokenKeys("", str(file))
    assert keys() == (b"old",)
    file.write_text("new\nold")
    assert keys() == (b"new", b"old")
    replacement = tmp_path / "replacement"
    replacement.write_text("NEW\nold")
    replacement.rename(file)
    assert keys() == (b"NEW", b"old")


def test_a_file_that_cannot_be_used_switches_tokens_off_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys"
    file.write_text("secret one")
    keys = TokenKeys("configured", str(file))
    assert len(keys()) == 2
    with caplog.at_level(logging.ERROR):
        file.unlink()
        assert keys() == ()
        file.write_text("secret one\nsecret one")
        assert keys() == ()
    assert "no delegation tokens" in caplog.text
    assert "secret one" not in caplog.text
    file.write_text("secret one\nsecret two")
    assert keys() == (b"secret one", b"secret two", b"configured")


def test_a_missing_file_is_complained_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = TokenKeys("", str(tmp_path / "keys"))
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert keys() == ()
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "holds no key"),
        (b"# nothing\n\n", "holds no key"),
        (b"\xff\xfe", "not UTF-8"),
        (b"one\ntwo\none\n", "key of line 3"),
        (b"one\nt\x00o\n", "line 2"),
    ],
)
def test_a_malformed_file_is_refused_without_showing_a_key(content: bytes, why: str) -> None:
    with pytest.raises(KeyFileError, match=why) as refused:
        parse_keys(content)
    assert "one" not in str(refused.value)
