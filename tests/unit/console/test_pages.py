"""Documents and their live sections."""

import json
from html.parser import HTMLParser

from quorate.broker.console import assets
from quorate.broker.console.browser_checks import SECURITY_HEADERS
from quorate.broker.console.live_updates import LiveUpdates, changed_sections
from quorate.broker.console.pages.charts import BYTES_PER_S, chart, spark
from quorate.broker.console.pages.document import AREAS, document
from quorate.broker.console.pages.formats import duration, milliseconds, number, size, when
from quorate.broker.console.pages.markup import Html, h
from quorate.broker.console.pages.page import Page, Section
from quorate.broker.console.pages.table import PAGES
from quorate.broker.console.views.series import Line
from tests.support.console import Document


def page(*sections: Section) -> Page:
    return Page("<title>", "topics", sections, trail=(("Topics", "/topics"),), live_every_s=5.0)


def test_a_document_has_no_code_of_its_own_and_escapes_what_it_is_told() -> None:
    text = document(
        page(Section("a", h("p", "<b>"))),
        cluster="<c>",
        broker=1,
        who="User:<i>",
        assets="/assets/1",
        events="/events?at=/",
    )
    parsed = Document(text)
    kinds = {one.tag for one in parsed.elements}
    assert not kinds & {"c", "style", "iframe"}
    assert [one.attributes["src"] for one in parsed.of("script")] == ["/assets/1/console.js"]
    assert "<i>" not in text.replace("<i></i>", "")
    assert "&lt;title&gt;" in text


def test_every_area_has_a_page() -> None:
    assert {path for _, path in AREAS} == set(PAGES)


def test_sections_are_sent_when_they_have_changed() -> None:
    sent: dict[str, str] = {}
    first = page(Section("a", Html("1"), live=True), Section("b", Html("2")))
    assert changed_sections(first, sent) == (
        b"event: section\ndata: " + json.dumps({"name": "a", "html": "1"}).encode() + b"\n\n"
    )
    assert changed_sections(first, sent) == b": same\n\n"
    assert b'"<\\n>"' in changed_sections(page(Section("a", Html("<\n>"), live=True)), sent)


def test_one_person_has_a_bounded_number_of_streams() -> None:
    live = LiveUpdates()
    opened = []
    for _ in range(21):
        stream = live.counted("User:a")
        opened.append((stream, stream.__enter__()))
    assert [is_within for _, is_within in opened] == [True] * 20 + [False]
    with live.counted("User:b") as is_within:
        assert is_within
    for stream, _ in opened:
        stream.__exit__(None, None, None)
    with live.counted("User:a") as is_within:
        assert is_within


class _Svg(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.paths: list[dict[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "path":
            self.paths.append(dict(attrs))


def test_a_chart_has_a_gap_where_nothing_was_measured() -> None:
    nan = float("nan")
    drawn = chart("In", [Line("broker 1", [1, nan, 2, 2])], BYTES_PER_S, 1_000, 10_000)
    line = _Svg(drawn).paths[-1]
    assert line["data-points"] == "1,,2,2"
    assert str(line["d"]).count("M") == 2
    assert "nan" not in drawn


def test_charts_without_values_are_drawn_all_the_same() -> None:
    assert "nothing yet" in chart("In", [], BYTES_PER_S, 0, 10_000)
    assert "<svg" in spark([])
    assert "nan" not in spark([float("nan")])
    zeros = chart("In", [Line("a", [0.0, 0.0])], BYTES_PER_S, 0, 10_000)
    assert "0\u202fB/s" in zeros


def test_of_many_lines_those_with_the_most_are_shown() -> None:
    lines = [Line(f"broker {one}", [float(one)]) for one in range(20)]
    drawn = chart("In", lines, BYTES_PER_S, 0, 10_000)
    assert "12 more with less" in drawn
    assert "broker 19" in drawn
    assert "broker 3<" not in drawn


def test_figures_are_short() -> None:
    assert number(1_234_567) == "1\u202f234\u202f567"
    assert size(1_230_000) == "1.23\u202fMB"
    assert size(-1) == "—"
    assert milliseconds(4.26) == "4.3\u202fms"
    assert duration(7_200_000) == "2\u202fh"
    assert when(0) == "—"
    assert when(1_000) == "1970-01-01 00:00:01"


def test_nothing_comes_from_another_host() -> None:
    policy = SECURITY_HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    for name, asset in assets.assets().items():
        content = asset.content.decode().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in content, name
        assert "https:" not in content, name
        assert "@import" not in content, name
    assert "eval(" not in assets.assets()["console.js"].content.decode()
