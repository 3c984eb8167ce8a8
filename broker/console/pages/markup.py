"""HTML that escapes by default. Pure.

``h`` makes an element. What is not HTML already is escaped, wherever it came from, so a name or a
record cannot become markup. Attributes that would run code or load something do not exist here.
"""

import html
import re
from collections.abc import Iterable
from typing import Final, TypeAlias
from urllib.parse import quote, urlencode

from quorate.common.escaping import escaped, escaped_lines


class Html(str):
    """A text that is HTML already. Only this module makes it."""

    __slots__ = ()


Child: TypeAlias = "str | int | float | Html | Iterable[Child] | None"
Attribute: TypeAlias = str | int | float | bool | None

_VOID: Final = frozenset({"br", "col", "hr", "img", "input", "link", "meta"})
_NAME: Final = re.compile(r"[a-z][a-z0-9-]*", re.IGNORECASE)
_LINKS: Final = frozenset({"href", "src", "action", "formaction"})

NOTHING: Final = Html("")


def h(tag: str, *children: Child, **attributes: Attribute) -> Html:
    """Return an element.

    A trailing underscore of an attribute's name is dropped, and others become hyphens: ``class_``,
    ``data_kind``. Attributes that are None or False are left out. True stands alone.

    Raises:
        ValueError: the element would run code, or a link leaves the console.
    """
    written = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _VOID:
        return Html(f"<{tag}{written}>")
    return Html(f"<{tag}{written}>{join(children)}</{tag}>")


def join(children: Child) -> Html:
    """Return children one after the other. Text among them is escaped."""
    if children is None:
        return NOTHING
    if isinstance(children, Html):
        return children
    if isinstance(children, str):
        return text(children)
    if isinstance(children, int | float):
        return Html(str(children))
    return Html("".join(map(join, children)))


def text(value: str) -> Html:
    """Return escaped text on one line. Control characters, and those that turn the direction of
    writing, are shown as their escapes.
    """
    return Html(html.escape(escaped(value)))


def lines(value: str) -> Html:
    """Return escaped text that keeps its line ends, for ``pre``."""
    return Html(html.escape(escaped_lines(value)))


def url(*parts: str, **query: str | int | None) -> str:
    """Return the path of a page of the console. Parts and query are encoded.

    Values that are None or empty are left out.
    """
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    spelled = name.rstrip("_").replace("_", "-")
    if not _NAME.fullmatch(spelled) or spelled.startswith("on") or spelled == "style":
        raise ValueError(f"attribute {spelled!r} is not used here: it could run code")
    if value is True:
        return f" {spelled}"
    shown = str(value)
    if spelled in _LINKS and not _stays_here(shown):
        raise ValueError(f"{spelled}={shown!r} is no page of the console")
    return f' {spelled}="{html.escape(escaped(shown))}"'


def _stays_here(target: str) -> bool:
    """Return whether a link leads to a page of this console: no scheme, no other host."""
    return target.startswith(("/", "?", "#")) and not target.startswith(("//", "/\\"))
