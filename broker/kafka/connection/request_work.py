"""The price of a request, declared for each API, and how a large request is carried out in parts.

The price is counted in elements: array elements and tagged fields of the request. The largest
number is far above what clients send, and low enough that a request has its place in memory and its
time. A request over the price is refused before anything is done for it.

The items of most requests do not depend on each other. A request with many of them is carried out
as several requests with a few items each, one after the other, and between them others have a turn
(``quota.work_turns``). So a handler needs no code for large requests, and the response to each part
is encoded before the next part begins.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, Protocol

from quorate.broker.common.steps import Steps
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.kafka.wire.primitives import Buffers

DECODED_AT_ONCE: Final = 500
"""The most elements that are decoded without a break. Larger requests are decoded in steps."""

ELEMENT_BYTES: Final = 256
"""The memory of one decoded element. Between two bytes on the wire there may be a whole dict."""

FEW_ELEMENTS: Final = 64
"""The number of elements whose memory is not counted, because most requests have fewer."""

FRAME_BYTES_MAX: Final = 4 << 20
"""The largest frame of an API that does not say otherwise."""


class PartedAnswer(Protocol):
    """The response to a request that is carried out in parts."""

    @property
    def size(self) -> int:
        """The bytes that it holds so far."""

    def add(self, response: Any) -> bool:  # noqa: ANN401 - its handler's type
        """Take the response to the next part. Return False if there is nothing more to do."""

    def encode(self) -> Steps[Buffers]:
        """Return the whole response."""


class RequestDivision(Protocol):
    """Divides the requests of one API."""

    @property
    def at_once(self) -> int:
        """The number of elements up to which a request is not divided."""

    def parts(self, body: Any) -> Iterator[Any]:  # noqa: ANN401 - its handler's type
        """Yield requests with a few items each, in order."""

    def answer(self, api_name: str, version: int) -> PartedAnswer:
        """Return the response to a request, without anything in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestWork:
    """The price of the requests of one API, and how a large one is carried out.

    Without a ``division`` the handler carries out the whole request. It has few items then, or the
    handler gives way by itself. With ``parts_overlap`` the parts begin in order without waiting for
    each other. With ``waits_for_room`` each part begins only when few batches wait for the disk, so
    that small requests do not queue up behind all parts. ``has_long_answer`` means that a response
    may be long however short its request is, so it is encoded in steps, and its handler gives way
    and holds memory (``answer_price``). An ``is_long_poll`` waits for others, so it must not keep
    the memory for large requests meanwhile.
    """

    elements_max: int
    frame_bytes_max: int = FRAME_BYTES_MAX
    division: RequestDivision | None = None
    parts_overlap: bool = False
    waits_for_room: bool = False
    has_long_answer: bool = False
    is_long_poll: bool = False
    decoded_at_once: int = field(init=False)
    """The most elements that are decoded without a break."""
    whole_elements_max: int = field(init=False)
    """The most elements of a request that is carried out without slices. It is -1 if no request
    is, because of its response.
    """

    def __post_init__(self) -> None:
        whole = self.elements_max if self.division is None else self.division.at_once
        object.__setattr__(self, "whole_elements_max", -1 if self.has_long_answer else whole)
        object.__setattr__(self, "decoded_at_once", min(self.elements_max, DECODED_AT_ONCE))


class Repeated(Enum):
    """The treatment of items that a request names more than once."""

    KEPT = auto()
    """Each is answered, because answers are small and cheap."""
    DROPPED = auto()
    """One is answered, because answers may be large. Kafka's own clients repeat no item."""
    TOGETHER = auto()
    """The handler gets all of them in one part, because it refuses what is named twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """The array of items in a request, and how it is divided.

    ``field`` is the array. ``name`` are the fields that tell its items apart; without one, the
    items are plain values. If an item has an array of items itself, as a topic has partitions,
    ``inner`` is that array, and its elements count. Versions without the ``field`` are divided by
    ``older``.
    """

    field: str
    name: tuple[str, ...] = ()
    inner: str = ""
    at_once: int = 16
    repeated: Repeated = Repeated.KEPT
    older: "Items | None" = None

    def parts(self, body: Message) -> Iterator[Message]:
        """Yield requests with up to ``at_once`` items each, in order."""
        if self.older is not None and self.field not in body:
            yield from self.older.parts(body)
            return
        part: list[Any] = []
        count = 0
        for unit in self._units(body[self.field] or ()):
            size = sum(map(self._count, unit))
            if part and count + size > self.at_once:
                yield {**body, self.field: part}
                part, count = [], 0
            part += unit
            count += size
        yield {**body, self.field: part} if part else body

    def _units(self, items: Iterable[Any]) -> Iterator[list[Any]]:
        """Yield the items that must not be separated."""
        if self.repeated is not Repeated.KEPT:
            yield from self._by_name(items)
        elif self.inner:
            for item in items:
                yield from ([piece] for piece in self._cut(item))
        else:
            yield from ([item] for item in items)

    def _by_name(self, items: Iterable[Any]) -> Iterator[list[Any]]:
        by_name: dict[Any, list[Any]] = {}
        for item in items:
            name = tuple(item[field] for field in self.name) if self.name else item
            by_name.setdefault(name, []).append(item)
        for named in by_name.values():
            if self.repeated is Repeated.TOGETHER:
                yield named
            elif not self.inner:
                yield named[:1]
            else:
                distinct = dict.fromkeys(one for item in named for one in item[self.inner])
                yield from ([piece] for piece in self._cut({**named[0], self.inner: [*distinct]}))

    def _cut(self, item: Message) -> Iterator[Message]:
        inner = item[self.inner] or ()
        if len(inner) <= self.at_once:
            yield item
            return
        for start in range(0, len(inner), self.at_once):
            yield {**item, self.inner: inner[start : start + self.at_once]}

    def _count(self, item: Any) -> int:  # noqa: ANN401 - a Message, or a plain value
        return max(1, len(item[self.inner] or ())) if self.inner else 1
