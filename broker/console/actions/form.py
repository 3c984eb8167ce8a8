"""The fields of a form, checked as they are read. Pure."""

import math
from collections.abc import Mapping
from typing import NamedTuple


class BadForm(ValueError):
    """A field is missing or is not what it should be. The message is for the person."""


class Form:
    """The fields that a person sent."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = fields

    def text(self, name: str, default: str | None = None) -> str:
        """Return a field without the blanks around it.

        Raises:
            BadForm: it is missing or empty, and there is no ``default``.
        """
        value = self._fields.get(name, "").strip()
        if value:
            return value
        if default is None:
            raise BadForm(f"{name.replace('_', ' ')} is missing")
        return default

    def exact(self, name: str) -> str:
        """Return a field that names an existing thing, with the blanks that the name has.

        A client may name a group `` orders``: what is done to it must not be done to ``orders``.

        Raises:
            BadForm: it is missing or empty.
        """
        self.text(name)
        return self.raw(name)

    def raw(self, name: str) -> str:
        """Return a field as it is; empty if it is missing."""
        return self._fields.get(name, "")

    def number(self, name: str, least: int = 0, most: int = 2**31 - 1) -> int:
        """Return a number.

        Raises:
            BadForm: it is none, or not within its bounds.
        """
        given = self.text(name)
        digits = given.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
            raise BadForm(f"{name.replace('_', ' ')}: {given!r} is no number")
        value = int(given)
        if not least <= value <= most:
            raise BadForm(f"{name.replace('_', ' ')}: {given} must be from {least} to {most}")
        return value

    def positive(self, name: str) -> float:
        """Return a number above 0 that may have a decimal point.

        Raises:
            BadForm: it is none, is not above 0, or has no end.
        """
        given = self.text(name)
        try:
            value = float(given) if given.isascii() and len(given) < 40 else math.nan
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            raise BadForm(f"{name.replace('_', ' ')}: {given!r} must be a number above 0")
        return value

    def is_on(self, name: str) -> bool:
        """Return whether a box is ticked."""
        return bool(self._fields.get(name))

    def pairs(self, name: str) -> dict[str, str]:
        """Return ``key=value, key=value`` as a dict. A value may have an equals sign.

        Raises:
            BadForm: an item has no equals sign.
        """
        found: dict[str, str] = {}
        for item in filter(None, map(str.strip, self._fields.get(name, "").split(","))):
            key, equals, value = item.partition("=")
            if not equals or not key.strip():
                raise BadForm(f"{name}: {item!r} must be key=value")
            found[key.strip()] = value.strip()
        return found

    def require_confirmed(self, name: str) -> None:
        """Check that the person has typed the name of what is to be deleted.

        Raises:
            BadForm: they have not.
        """
        if self._fields.get("confirmed", "").strip() != name.strip():
            raise BadForm(f"type {name} to confirm that it is to be deleted")


class Outcome(NamedTuple):
    """What became of one thing. ``error`` is empty if it was done."""

    thing: str
    done: str
    error: str = ""
