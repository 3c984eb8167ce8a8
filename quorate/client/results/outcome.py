"""What became of one item of a request: done, or refused and why."""

from dataclasses import dataclass
from typing import Protocol, Self, TypedDict

from quorate.client.errors import RequestFailed, error_name
from quorate_proto.v1 import errors_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``error`` is the name that Kafka has for ``error_code``, ``"NONE"`` for success."""

    error_code: int
    error: str
    message: str

    @property
    def ok(self) -> bool:
        return self.error_code == errors_pb2.NONE

    def raise_for_error(self) -> Self:
        """This result.

        Raises:
            RequestFailed: the item was refused, or not all of it could be done.
        """
        if not self.ok:
            raise RequestFailed(self.error_code, self._refusal())
        return self

    def _refusal(self) -> str:
        """What ``raise_for_error`` says."""
        return self.message


class OutcomeFields(TypedDict):
    """The fields of an ``Outcome``, for the constructors of its kinds."""

    error_code: int
    error: str
    message: str


class Answered(Protocol):
    """An answer for one item, as the wire has it."""

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
