"""Subscriptions to all topics whose names match a regular expression of RE2 (KIP-848).

Names are matched in steps, because there may be very many topics.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.common.regular_expressions import CompiledRegex, compiled_regex
from quorate.broker.common.steps import ITEMS_IN_A_STEP, Steps


class ResolvedRegex(NamedTuple):
    """The topics that matched at ``resolved_ms`` (wall clock), by the metadata of offset
    ``version``, as far as the member that asked may see them."""

    topics: frozenset[str]
    version: int
    resolved_ms: int


def matching_topics(
    regexes: Sequence[str], names: Collection[str]
) -> Steps[dict[str, frozenset[str]]]:
    """Return the names that each of the regular expressions matches as a whole.

    One that cannot be compiled any more, by another version of RE2, matches nothing.
    """
    matching: dict[str, frozenset[str]] = {}
    for regex in regexes:
        matching[regex] = frozenset()
        pattern = _known(regex)
        if pattern is None:
            continue
        found: set[str] = set()
        for number, name in enumerate(names):
            if pattern.fullmatch(name):
                found.add(name)
            if not number % ITEMS_IN_A_STEP:
                yield
        matching[regex] = frozenset(found)
    return matching


def _known(regex: str) -> CompiledRegex | None:
    try:
        return compiled_regex(regex)
    except KafkaError:
        return None
