"""HTML escapes by default, whoever chose a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.console.pages.markup import h, join, lines, text, url
from tests.support.console import Document

HOSTILE = "<script>alert(1)</script>\"'&\x00\u202e\ud800"


def test_text_between_elements_is_escaped() -> None:
    made = h("p", HOSTILE, [h("b", "x"), None, 3])
    assert "<script" not in made
    assert made.endswith("<b>x</b>3</p>")
    assert "\u202e" not in made, "it would turn the direction of writing"


@given(st.text(st.characters(exclude_categories=())))
def test_no_text_becomes_an_element_or_leaves_its_attribute(chosen: str) -> None:
    made = h("a", chosen, title=chosen, data_name=chosen, href="/topics")
    parsed = Document(made.encode("utf-8", "replace").decode())
    assert [one.tag for one in parsed.elements] == ["a"]
    assert set(parsed.elements[0].attributes) == {"title", "data-name", "href"}


@given(st.text())
def test_a_name_in_a_path_or_query_stays_one_part_of_it(chosen: str) -> None:
    made = url("topics", chosen, q=chosen)
    assert made.startswith("/topics/")
    assert made.count("/") == 2
    assert h("a", "x", href=made)


def test_absent_attributes_are_left_out() -> None:
    made = h("input", type="text", checked=True, required=False, value=None, aria_label="a")
    assert made == '<input type="text" checked aria-label="a">'


@pytest.mark.parametrize("name", ["onclick", "onerror", "style", "a b", "x=y", 'x"'])
def test_attributes_that_could_run_code_do_not_exist(name: str) -> None:
    with pytest.raises(ValueError, match="could run code"):
        h("p", **{name: "alert(1)"})


@pytest.mark.parametrize(
    "target",
    ["javascript:alert(1)", "//evil.example", "/\\evil.example", "http://evil.example", "data:x"],
)
def test_links_stay_in_the_console(target: str) -> None:
    for attribute in ("href", "src", "action"):
        with pytest.raises(ValueError, match="no page of the console"):
            h("a", "x", **{attribute: target})


def test_a_preformatted_text_keeps_its_lines() -> None:
    assert lines("a\n<b>\x1b") == "a\n&lt;b&gt;\\x1b"
    assert text("a\nb") == "a\\nb"
    assert join(["<", h("br")]) == "&lt;<br>"
