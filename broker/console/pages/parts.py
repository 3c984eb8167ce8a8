"""The parts that pages are made of: tables, tiles, pills, pagers and forms. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from quorate.broker.console.pages.formats import count, number
from quorate.broker.console.pages.markup import NOTHING, Child, Html, h, join, url

PAGE_ROWS: Final = 50
"""The rows of one page of a table. Longer tables are cut by the broker."""


class Column(NamedTuple):
    """A column of a table. Numbers stand at the right. A ``sort`` key makes the head a link."""

    title: str
    numeric: bool = False
    sort: str = ""
    wide: bool = False


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[Child]],
    empty: str = "Nothing here.",
    sorting: "Sorting | None" = None,
) -> Html:
    """Return a table, or a sentence where there are no rows."""
    body = [h("tr", [_cell(*one) for one in zip(columns, row, strict=True)]) for row in rows]
    if not body:
        return h("p", empty, class_="empty")
    head = h("tr", [_head(column, sorting) for column in columns])
    return h("div", h("table", h("thead", head), h("tbody", body)), class_="table", tabindex=0)


class Sorting(NamedTuple):
    """How a table is sorted, and the page whose query changes that."""

    path: tuple[str, ...]
    query: Mapping[str, str]
    by: str


def _head(column: Column, sorting: Sorting | None) -> Html:
    align = "num" if column.numeric else None
    if not column.title:
        return h("td")
    if sorting is None or not column.sort:
        return h("th", column.title, scope="col", class_=align)
    query = {**sorting.query, "sort": column.sort, "page": ""}
    is_current = sorting.by == column.sort
    return h(
        "th",
        h("a", column.title, href=url(*sorting.path, **query)),
        scope="col",
        class_=align,
        aria_sort="descending"
        if is_current and column.numeric
        else "ascending"
        if is_current
        else None,
    )


def _cell(column: Column, value: Child) -> Html:
    classes = " ".join(
        name for name, holds in (("num", column.numeric), ("wide", column.wide)) if holds
    )
    return h("td", value, class_=classes or None)


def pager(path: tuple[str, ...], query: Mapping[str, str], page: int, rows: int, noun: str) -> Html:
    """Return the links to the pages before and after, and how many rows there are in all."""
    pages = max(1, -(-rows // PAGE_ROWS))
    shown = h("span", count(rows, noun), class_="muted")
    if pages == 1:
        return h("nav", shown, class_="pager", aria_label="Pages")

    def link(label: str, target: int, rel: str) -> Html:
        if not 1 <= target <= pages:
            return h("span", label, class_="button off", aria_disabled="true")
        given = {**query, "page": str(target) if target > 1 else ""}
        return h("a", label, href=url(*path, **given), class_="button", rel=rel)

    return h(
        "nav",
        shown,
        h("span", f"page {number(page)} of {number(pages)}", class_="muted"),
        link("← Previous", page - 1, "prev"),
        link("Next →", page + 1, "next"),
        class_="pager",
        aria_label="Pages",
    )


def page_of(rows: Sequence[object], asked: str) -> tuple[int, slice]:
    """Return the number of the page that is asked for, and its rows. A wrong number is the nearest
    that exists.
    """
    pages = max(1, -(-len(rows) // PAGE_ROWS))
    page = (
        min(max(int(asked), 1), pages)
        if asked.isascii() and asked.isdecimal() and len(asked) < 9
        else 1
    )
    return page, slice((page - 1) * PAGE_ROWS, page * PAGE_ROWS)


def pill(label: Child, kind: str = "") -> Html:
    """Return a small label. ``kind`` is ok, note, serious or critical."""
    return h("span", label, class_=f"pill {kind}".strip())


def tile(label: str, value: Child, detail: Child = None, kind: str = "", href: str = "") -> Html:
    """Return one of the large figures at the top of a page."""
    inside = [
        h("span", label, class_="tile-label"),
        h("span", value, class_="tile-value"),
        h("span", detail, class_="tile-detail"),
    ]
    if href:
        return h("a", inside, class_=f"tile {kind}".strip(), href=href)
    return h("div", inside, class_=f"tile {kind}".strip())


def tiles(*parts: Html) -> Html:
    return h("div", parts, class_="tiles")


def facts(pairs: Iterable[tuple[str, Child]]) -> Html:
    """Return names with their values."""
    return h("dl", [(h("dt", name), h("dd", value)) for name, value in pairs], class_="facts")


def panel(title: str, *content: Child, aside: Child = None) -> Html:
    """Return a part of a page with a heading."""
    head = h("header", h("h2", title), h("div", aside, class_="aside") if aside else None)
    return h("section", head, content, class_="panel")


def tabs(items: Iterable[tuple[str, str]], current: str) -> Html:
    """Return the tabs of a page, as titles and links."""
    links = [
        h("a", title, href=href, aria_current="page" if title == current else None)
        for title, href in items
    ]
    return h("nav", links, class_="tabs", aria_label="Views")


def note(*content: Child, kind: str = "") -> Html:
    """Return a sentence that stands out."""
    return h("p", content, class_=f"note {kind}".strip(), role="status" if kind else None)


def meter(share: float, label: str, *, is_load: bool = True) -> Html:
    """Return a bar that is filled to ``share``. A load is bad when it is high; progress is not."""
    kind = "critical" if share >= 0.95 else "serious" if share >= 0.85 else "ok"
    kind = kind if is_load else "ok"
    filled = max(0.0, min(share, 1.0))
    return h(
        "span",
        h(
            "svg",
            h("rect", width=100, height=6, class_="meter-track"),
            h("rect", width=f"{100 * filled:.1f}", height=6, class_=f"meter-fill {kind}"),
            viewBox="0 0 100 6",
            preserveAspectRatio="none",
            role="img",
            aria_label=f"{100 * filled:.0f} percent",
        ),
        h("span", label),
        class_="meter",
    )


def ids(brokers: Iterable[int], missing: frozenset[int] = frozenset()) -> Html:
    """Return broker ids. Those that are ``missing`` from the ISR are marked."""
    shown = [
        h("span", str(one), class_="id out" if one in missing else "id", title="not in sync")
        if one in missing
        else h("span", str(one), class_="id")
        for one in brokers
    ]
    return join(shown) if shown else h("span", "none", class_="muted")


# -- forms -------------------------------------------------------------------------------------


def field(label: str, control: Html, hint: str = "") -> Html:
    """Return a control with its label."""
    return h(
        "label",
        h("span", label, class_="field-label"),
        control,
        h("span", hint, class_="hint") if hint else NOTHING,
        class_="field",
    )


def text_input(name: str, value: str = "", **more: str | int | bool | None) -> Html:
    return h(
        "input", type="text", name=name, value=value, autocomplete="off", spellcheck="false", **more
    )


def number_input(name: str, value: str | int = "", **more: str | int | bool | None) -> Html:
    return h("input", type="number", name=name, value=str(value), **more)


def checkbox(name: str, label: str, checked: bool = False) -> Html:
    """Return a box to tick with its label. A box that is not ticked is not sent."""
    box = h("input", type="checkbox", name=name, value="1", checked=checked)
    return h("label", box, f" {label}")


def password_input(name: str) -> Html:
    """Return a field for a new password, which browsers do not show and offer to make up."""
    return h("input", type="password", name=name, autocomplete="new-password", required=True)


def select(
    name: str, options: Iterable[tuple[str, str]], chosen: str = "", label: str | None = None
) -> Html:
    """Return a choice between values with labels. ``label`` is for one outside of a ``field``."""
    made = [h("option", label, value=value, selected=value == chosen) for value, label in options]
    return h("select", made, name=name, aria_label=label)


def query_form(path: tuple[str, ...], *controls: Child, label: str = "Show") -> Html:
    """Return a form that only reads."""
    return h(
        "form",
        controls,
        h("button", label, type="submit"),
        method="get",
        action=url(*path),
        class_="query",
    )


def action_form(
    action: str,
    token: str,
    *controls: Child,
    label: str,
    hidden: Mapping[str, str] | None = None,
    danger: bool = False,
) -> Html:
    """Return a form that changes something. ``token`` shows that this page made it."""
    given = [
        h("input", type="hidden", name=name, value=value) for name, value in (hidden or {}).items()
    ]
    return h(
        "form",
        h("input", type="hidden", name="token", value=token),
        given,
        controls,
        h("button", label, type="submit", class_="danger" if danger else "primary"),
        method="post",
        action=url("actions", action),
        class_="action",
    )


def unfolding(title: str, *content: Child) -> Html:
    """Return content that is shown when its title is chosen."""
    return h("details", h("summary", title), h("div", content, class_="unfolded"))
