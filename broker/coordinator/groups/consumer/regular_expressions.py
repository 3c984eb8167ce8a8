"""Subscriptions to all topics whose names match a regular expression of RE2 (KIP-848).

RE2 takes time in proportion to the name, whatever the expression is, so a client cannot stop the
broker with one. Names are matched in steps, because there may be very many topics.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import re2

from quorate.broker.common.errors import KafkaError
from quorate.broker.common.steps import ITEMS_IN_A_STEP, Steps
from quorate_proto.v1 import errors_pb2

REGEX_LENGTH_MAX: Final = 4096
"""The longest regular expression. RE2 compiles one of this length in a few milliseconds."""


class ResolvedRegex(NamedTuple):
    """The topics that matched at ``resolved_ms`` (wall clock), by the metadata of offset
    ``version``, as far as the member that asked may see them."""

    topics: frozenset[str]
    version: int
    resolved_ms: int


def check_regex(regex: str) -> None:
    """Check that a regular expression can be used.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION.
    """
    _compiled(regex)


def matching_topics(
    regexes: Sequence[str], names: Collection[str]
) -> Steps[dict[str, frozenset[str]]]:
    """Return the names that each of the regular expressions matches as a whole.

    One that cannot be compiled any more, by another version of RE2, matches nothing.
    """
    matching: dict[str, frozenset[str]] = {}
    for regex in regexes:
        found: set[str] = set()
        try:
            pattern = _compiled(regex)
        except KafkaError:
            pattern = None
        for number, name in enumerate(names if pattern is not None else ()):
            if pattern.fullmatch(name):
                found.add(name)
            if not number % ITEMS_IN_A_STEP:
                yield
        matching[regex] = frozenset(found)
    return matching


def _compiled(regex: str) -> Any:  # noqa: ANN401
    if len(regex) > REGEX_LENGTH_MAX:
        raise _invalid(
            f"a regular expression of {len(regex)} characters: at most {REGEX_LENGTH_MAX}"
        )
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        raise _invalid(f"regular expression {regex!r} is not valid (RE2): {error}") from error


def _invalid(message: str) -> KafkaError:
    return KafkaError(errors_pb2.INVALID_REGULAR_EXPRESSION, message)
