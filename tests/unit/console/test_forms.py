"""Forms: their fields, their tokens, and where they come from."""

import pytest

from quorate.broker.console.actions.form import BadForm, Form
from quorate.broker.console.actions.form_tokens import GOOD_FOR_S, FormTokens
from quorate.broker.console.actions.table import ACTIONS
from quorate.broker.console.browser_checks import is_from_here, may_be_named
from quorate.broker.console.pages.records_page import BadQuestion, moment_ms


def test_numbers_are_numbers_within_bounds() -> None:
    form = Form({"n": " 7 ", "text": "x", "big": "9" * 30, "arabic": "٣"})
    assert form.number("n") == 7
    for name in ("text", "big", "arabic", "absent"):
        with pytest.raises(BadForm):
            form.number(name)
    with pytest.raises(BadForm, match="from 8 to"):
        form.number("n", 8)


def test_pairs_keep_what_is_behind_the_first_equals_sign() -> None:
    assert Form({"c": "a=1, b=x=y,,"}).pairs("c") == {"a": "1", "b": "x=y"}
    with pytest.raises(BadForm, match="'nothing' must be key=value"):
        Form({"c": "nothing"}).pairs("c")


def test_a_deletion_is_confirmed_by_its_name() -> None:
    Form({"confirmed": " orders "}).require_confirmed("orders")
    with pytest.raises(BadForm, match="type orders"):
        Form({"confirmed": "order"}).require_confirmed("orders")


def test_a_thing_is_named_with_the_blanks_that_its_name_has() -> None:
    """Else a client that names a group so would have somebody delete another one."""
    form = Form({"group": " orders", "confirmed": "orders", "none": " "})
    assert form.exact("group") == " orders"
    form.require_confirmed(" orders")
    with pytest.raises(BadForm, match="none is missing"):
        form.exact("none")


def test_a_token_is_good_for_its_person_and_some_hours() -> None:
    now = 1_000.0
    tokens = FormTokens(b"key", lambda: now)
    token = tokens.make("User:alice")
    assert tokens.is_good("User:alice", token)
    assert not tokens.is_good("User:bob", token)
    assert not FormTokens(b"other", lambda: now).is_good("User:alice", token)
    for bad in ("", ".", "1000", token[:-1], f"9{token}", "é" + token, f"1001{token[4:]}"):
        assert not tokens.is_good("User:alice", bad), bad
    now += GOOD_FOR_S
    assert not tokens.is_good("User:alice", token)


@pytest.mark.parametrize(
    ("headers", "is_ours"),
    [
        ({"Host": "a:1", "Origin": "http://a:1"}, True),
        ({"Host": "a:1", "Origin": "https://A:1"}, True),
        ({"Host": "a:1"}, True),
        ({"Host": "a:1", "Origin": "http://a:2"}, False),
        ({"Host": "a:1", "Origin": "null"}, False),
        ({"Origin": "null"}, False),
        ({"Host": "a:1", "Sec-Fetch-Site": "same-site", "Origin": "http://a:1"}, False),
        ({"Host": "a:1", "Sec-Fetch-Site": "same-origin"}, True),
    ],
)
def test_a_form_of_another_site_is_known(headers: dict[str, str], is_ours: bool) -> None:
    assert is_from_here(headers) == is_ours


@pytest.mark.parametrize(
    ("authority", "is_known"),
    [
        ("127.0.0.1:8080", True),
        ("[::1]:8080", True),
        ("localhost", True),
        ("console.example:80", True),
        ("evil.example:8080", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        ("[bad", False),
    ],
)
def test_names_that_others_control_do_not_open_the_console(authority: str, is_known: bool) -> None:
    assert may_be_named(authority, ["console.example"]) == is_known


def test_a_time_is_in_utc_unless_it_says_otherwise() -> None:
    assert moment_ms("1970-01-01 00:00:01") == 1_000
    assert moment_ms("1970-01-01T01:00+01:00") == 0
    assert moment_ms("123456") == 123_456
    with pytest.raises(BadQuestion, match="is no time"):
        moment_ms("yesterday")


def test_actions_have_names_of_their_own() -> None:
    assert len({one.name for one in ACTIONS}) == len(ACTIONS)
