"""The document around a page: head, navigation, and the places where live sections go. Pure."""

from typing import Final

from quorate.broker.console.pages.markup import NOTHING, Html, h, url
from quorate.broker.console.pages.page import Page, Section

AREAS: Final = (
    ("Overview", ""),
    ("Brokers", "brokers"),
    ("Topics", "topics"),
    ("Groups", "groups"),
    ("Transactions", "transactions"),
    ("Configs", "configs"),
    ("Quotas", "quotas"),
    ("Users", "users"),
    ("ACLs", "acls"),
    ("Quorum", "quorum"),
    ("Metadata log", "metadata"),
    ("Audit trail", "audit"),
)

_DOCTYPE: Final = "<!DOCTYPE html>"


def document(
    page: Page, *, cluster: str, broker: int, who: str, assets: str, events: str = ""
) -> str:
    """Return the whole document.

    ``assets`` is the folder of the style sheet and the script, which changes with their content.
    ``events`` is where live sections come from.
    """
    head = h(
        "head",
        h("meta", charset="utf-8"),
        h("meta", name="viewport", content="width=device-width, initial-scale=1"),
        h("meta", name="color-scheme", content="light dark"),
        h("title", f"{page.title} · Quorate"),
        h("link", rel="icon", href=f"{assets}/icon.svg", type="image/svg+xml"),
        h("link", rel="stylesheet", href=f"{assets}/console.css"),
        h("script", src=f"{assets}/console.js", defer=True),
    )
    body = h(
        "body",
        h("a", "Skip to content", href="#content", class_="skip"),
        _side(page.area, cluster),
        h(
            "div",
            _top(page, broker, who),
            h("main", [section_element(one) for one in page.sections], id="content", tabindex=-1),
            class_="stage",
        ),
        data_events=events or None,
        data_cluster=cluster,
    )
    return _DOCTYPE + h("html", head, body, lang="en")


def section_element(section: Section) -> Html:
    """Return a section with the name by which it is replaced."""
    return h("div", section.html, id=f"section-{section.name}", class_="part")


def _side(area: str, cluster: str) -> Html:
    links = [
        h(
            "a",
            title,
            href=url(*filter(None, [path])),
            aria_current="page" if path == area else None,
        )
        for title, path in AREAS
    ]
    return h(
        "aside",
        h("a", _LOGO, h("span", "Quorate"), href="/", class_="brand"),
        h("div", h("span", "cluster"), h("b", cluster, title=cluster), class_="cluster"),
        h("nav", links, class_="areas", aria_label="Areas"),
        _KEYS,
        class_="side",
    )


def _top(page: Page, broker: int, who: str) -> Html:
    trail = [
        (h("a", title, href=href), h("span", "/", class_="slash")) for title, href in page.trail
    ]
    live = (
        h("span", h("i"), h("span", "live"), class_="live", id="live", title="Updates itself")
        if page.live_every_s
        else NOTHING
    )
    return h(
        "header",
        h("h1", trail, h("span", page.title)),
        h(
            "div",
            live,
            h("span", f"broker {broker}", class_="muted"),
            h("span", who, class_="who", title="Who you are to the cluster"),
            h(
                "button",
                h("span", "Theme", class_="visually-hidden"),
                _HALF,
                type="button",
                id="theme",
                title="Light or dark (t)",
            ),
            class_="tools",
        ),
        class_="top",
    )


_KEYS: Final = h(
    "p",
    [
        (h("kbd", key), f" {meaning}", h("br"))
        for key, meaning in (
            ("/", "search"),
            ("g t", "go to topics"),
            ("[ ]", "turn pages"),
            ("t", "theme"),
        )
    ],
    class_="keys",
)
_LOGO: Final = h(
    "svg",
    h("circle", cx=8, cy=4, r=2.6),
    h("circle", cx=3.6, cy=11.6, r=2.6),
    h("circle", cx=12.4, cy=11.6, r=2.6),
    viewBox="0 0 16 16",
    class_="logo",
    aria_hidden="true",
)
_HALF: Final = h(
    "svg",
    h("circle", cx=8, cy=8, r=6, class_="ring"),
    h("path", d="M8 2a6 6 0 0 1 0 12z"),
    viewBox="0 0 16 16",
    aria_hidden="true",
)
