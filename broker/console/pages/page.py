"""A page before it is a document: its title, and its parts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from quorate.broker.console.asking.person import Person
from quorate.broker.console.pages.markup import Html

LIVE_EVERY_S: Final = 5.0
SLOWLY_LIVE_EVERY_S: Final = 15.0


class PageNotFound(Exception):
    """There is no such page, or no such thing. The message is for the person."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page that is sent again when it has changed, if it is ``live``."""

    name: str
    html: Html
    live: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """One page. ``area`` is its entry in the navigation."""

    title: str
    area: str
    sections: tuple[Section, ...]
    trail: tuple[tuple[str, str], ...] = ()
    """The pages above it: titles and links."""
    live_every_s: float = 0.0
    """How often live sections are made again for a browser that shows them; 0: never."""
    status: int = 200


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request for a page, by a person who was authenticated."""

    person: Person
    path: tuple[str, ...] = ()
    """The parts of the path behind the area."""
    query: Mapping[str, str] = field(default_factory=dict)
    token: str = ""
    """The token that forms of this page carry."""
    only_live: bool = False
    """Whether no section is shown but the live ones, so that costly others need not be made."""

    def asked(self, name: str, default: str = "") -> str:
        """Return a value of the query, without the blanks around it."""
        return self.query.get(name, default).strip()

    def asked_number(self, name: str, default: int, least: int = 0, most: int = 2**63 - 1) -> int:
        """Return a number of the query within its bounds, or ``default`` if it is none."""
        given = self.asked(name)
        digits = given.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
            return default
        return min(max(int(given), least), most)
