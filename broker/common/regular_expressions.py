"""Regular expressions of clients, in the syntax of RE2, as in Kafka (KIP-848, KIP-1152).

RE2 takes time in proportion to the text, whatever the expression is, so a client cannot stop the
broker with one. Python's ``re`` may need hours for an expression of a few characters.
"""

from typing import Final, Protocol

import re2

from quorate.broker.common.errors import KafkaError
from quorate_proto.v1 import errors_pb2

REGEX_LENGTH_MAX: Final = 4096
"""The longest regular expression. RE2 compiles one of this length in a few milliseconds."""


class CompiledRegex(Protocol):
    """A compiled expression. The package ``re2`` has no types."""

    def fullmatch(self, text: str) -> object | None:
        """Return something if the text matches as a whole, and None if not."""


def compiled_regex(regex: str) -> CompiledRegex:
    """Compile a regular expression.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION: it is too long, or RE2 does not know it.
    """
    if len(regex) > REGEX_LENGTH_MAX:
        raise KafkaError(
            errors_pb2.INVALID_REGULAR_EXPRESSION,
            f"a regular expression of {len(regex)} characters: at most {REGEX_LENGTH_MAX}",
        )
    options = re2.Options()
    options.log_errors = False
    try:
        compiled: CompiledRegex = re2.compile(regex, options)
    except re2.error as error:
        raise KafkaError(
            errors_pb2.INVALID_REGULAR_EXPRESSION,
            f"regular expression {regex!r} is not valid (RE2): {error}",
        ) from error
    return compiled
