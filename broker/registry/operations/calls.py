"""Requests to the registry, what they decide, and how their parts are read."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from quorate.broker.coordinator.shards.coordinator_records import LogRecord
from quorate.broker.registry.registry_errors import (
    RegistryError,
    invalid_subject,
    invalid_version,
    malformed,
)
from quorate.broker.registry.state.registry_state import RegistryState
from quorate.broker.registry.subjects import DEFAULT_CONTEXT, Subject
from quorate.broker.security.authorizer import Rights

Json: TypeAlias = Any
P = TypeVar("P")
T = TypeVar("T")

LATEST: Final = -1
_INT32_MAX: Final = (1 << 31) - 1
_TRUE: Final = "true"


@dataclass(frozen=True, slots=True)
class RegistryCall:
    """A request: the parameters of its path and of its query, and its body."""

    parameters: Mapping[str, str] = field(default_factory=dict)
    query: Sequence[tuple[str, str]] = ()
    body: bytes = b""

    def flag(self, name: str) -> bool:
        """Return whether a parameter of the query is true."""
        return self.option(name).lower() == _TRUE

    def option(self, name: str) -> str:
        """Return a parameter of the query, or an empty text."""
        return next((value for key, value in self.query if key == name), "")

    def options(self, name: str) -> list[str]:
        return [value for key, value in self.query if key == name]

    @property
    def subject(self) -> Subject:
        """The subject that the path names.

        Raises:
            RegistryError: it is no name of a subject.
        """
        subject = Subject.parse(self.parameters["subject"])
        if not subject.is_valid:
            raise invalid_subject(str(subject))
        return subject

    @property
    def scope(self) -> str | None:
        """The subject or the context that the path of a configuration names; None for the global
        one, which is also that of the default context.

        Raises:
            RegistryError: it is neither.
        """
        if "subject" not in self.parameters:
            return None
        subject = Subject.parse(self.parameters["subject"])
        if not subject.name:
            return None if subject.context == DEFAULT_CONTEXT else str(subject)
        return str(self.subject)

    @property
    def version(self) -> int:
        """The version that the path names; LATEST for the last one.

        Raises:
            RegistryError: it is no version.
        """
        text = self.parameters["version"].strip()
        if text.lower() in ("latest", "-1"):
            return LATEST
        if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:11]) <= _INT32_MAX:
            raise invalid_version(text)
        return int(text)

    @property
    def schema_id(self) -> int:
        """The id that the path names.

        Raises:
            RegistryError: it is no number.
        """
        text = self.parameters["id"]
        if not text.isascii() or not text.isdecimal() or int(text[:11]) > _INT32_MAX:
            raise RegistryError(404, 404, f"{text[:80]!r} is no id of a schema")
        return int(text)

    def json(self) -> Mapping[str, Json]:
        """Return the body, which must be an object.

        Raises:
            RegistryError: it is none.
        """
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            raise RegistryError(400, 400, "the body of the request is not JSON") from None
        if not isinstance(found, Mapping):
            raise malformed("the body of the request is no object")
        return found

    def page(self, found: Sequence[T]) -> list[T]:
        """Return the part of a list that ``offset`` and ``limit`` ask for; a limit below 0 is
        none."""
        offset, limit = self._number("offset", 0), self._number("limit", -1)
        begin = max(0, offset)
        return list(found[begin : begin + limit] if limit >= 0 else found[begin:])

    def _number(self, name: str, default: int) -> int:
        text = self.option(name)
        digits = text.removeprefix("-")
        if not digits.isascii() or not digits.isdecimal():
            return default
        return int(text[:11])


class Decision(NamedTuple):
    """The answer to a request, as JSON, and the records that must be written before it is given."""

    answer: Json
    records: Sequence[LogRecord] = ()


@dataclass(frozen=True, slots=True)
class HeavyWork(Generic[P, T]):
    """``compute`` takes long, and is called on a thread with ``plan``, which has all that it needs
    of the state. ``decide`` gets the result. Equal plans have equal results.

    Both may raise RegistryError.
    """

    plan: P
    compute: Callable[[P], T]
    decide: Callable[[T], Decision]


Outcome: TypeAlias = Decision | HeavyWork[Any, Any]

Handle: TypeAlias = Callable[[RegistryState, RegistryCall, Rights], Outcome]
"""Decides on a request. It may raise RegistryError."""
