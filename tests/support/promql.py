"""What a PromQL expression asks for: names of metrics, and labels with the values that must match.

It reads the expressions of the dashboard, of the alert rules and of the documents, which use a
small part of the language; it evaluates nothing.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

_KEYWORDS: Final = frozenset(
    {"and", "bool", "group_left", "group_right", "ignoring", "offset", "on", "or", "unless"}
)
_GROUPING: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_RANGE: Final = re.compile(r"\[[^\]]*\]")
_SELECTOR: Final = re.compile(r"([a-zA-Z_:][\w:]*)\s*(\{[^}]*\})?(\s*\()?")
_MATCHER: Final = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
OF_PROMETHEUS: Final = frozenset({"instance", "job", "le"})
"""Labels that Prometheus adds to what it scrapes, or that every histogram has."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition of a selector, such as ``request="produce"``."""

    label: str
    operator: str
    value: str

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """Return whether a series with these labels passes."""
        found = labels.get(self.label, "")
        same = (
            found == self.value
            if self.operator in ("=", "!=")
            else re.fullmatch(self.value, found) is not None
        )
        return same == (self.operator in ("=", "=~"))


@dataclass(frozen=True, slots=True)
class Selector:
    """The name of a metric, and the conditions on its labels."""

    name: str
    matchers: tuple[Matcher, ...]


def selectors(expression: str) -> list[Selector]:
    """Return every selector of an expression."""
    bare = _RANGE.sub("", _GROUPING.sub("", expression))
    bare = re.sub(r"\b\d+(?:\.\d+)?(?:e\d+)?\w?\b", "", bare)
    return [
        Selector(name, tuple(Matcher(*one) for one in _MATCHER.findall(braces)))
        for name, braces, call in _SELECTOR.findall(bare)
        if not call and name not in _KEYWORDS
    ]


def grouping_labels(expression: str) -> set[str]:
    """Return the labels that an expression groups or joins by."""
    named = {label.strip() for group in _GROUPING.findall(expression) for label in group.split(",")}
    return named - {""}


Series = Mapping[str, Iterable[Mapping[str, str]]]
"""Name of a series → the labels of each of its values."""


def what_is_missing(expression: str, series: Series) -> list[str]:
    """Return what an expression asks for that no value has; empty if each selector finds one, and
    every label by which values are grouped is a label of one of them."""
    missing, labels = [], set(OF_PROMETHEUS)
    for selector in selectors(expression):
        values = list(series.get(selector.name, ()))
        labels.update(label for value in values for label in value)
        if not values:
            missing.append(selector.name)
        missing += [
            f"{selector.name}{{{one.label}{one.operator}{one.value!r}}}"
            for one in selector.matchers
            if values and not any(one.accepts(value) for value in values)
        ]
    return missing + sorted(grouping_labels(expression) - labels)
