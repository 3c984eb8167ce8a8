"""The result of one item of a request: success, or a refusal with its reason."""

from dataclasses import dataclass
from typing import Protocol, Self, TypedDict

from quorate.client.errors import RequestFailed, error_name
from quorate_proto.v1 import errors_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemOutcome:
    """The base of all results. ``error`` is Kafka's name of ``error_code``, ``"NONE"`` for
    success."""

    error_code: int
    error: str
    message: str

    @property
    def ok(self) -> bool:
        return self.error_code == errors_pb2.NONE

    def raise_for_error(self) -> Self:
        """Return this result if it is a success.

        Raises:
            RequestFailed: the item was refused, or not all of it could be done.
        """
        if not self.ok:
            raise RequestFailed(self.error_code, self._refusal())
        return self

    def _refusal(self) -> str:
        """Return the message of the error that ``raise_for_error`` raises."""
        return self.message


class OutcomeFields(TypedDict):
    """The fields of an ``ItemOutcome``, for the constructors of its subclasses."""

    error_code: int
    error: str
    message: str


class Answered(Protocol):
    """An answer for one item, as the protocol has it."""

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str: ...


def outcome_of(answer: Answered) -> OutcomeFields:
    return {
        "error_code": answer.error_code,
        "error": error_name(answer.error_code),
        "message": answer.error_message,
    }
