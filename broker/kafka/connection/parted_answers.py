"""Responses that are put together from the responses to the parts of a request.

Each part is encoded when it is there, so what waits for the other parts is bytes, not objects.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from quorate.broker.common.steps import Steps
from quorate.broker.kafka.connection.request_work import Items
from quorate.broker.kafka.wire import codec
from quorate.broker.kafka.wire.codec import Encoded, Encoder, Message
from quorate.broker.kafka.wire.kio_layouts import EntityType
from quorate.broker.kafka.wire.primitives import Buffers
from quorate.broker.kafka.wire.stepwise import array_of, encode_around, shape_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemDivision:
    """Divides requests by their ``items``, and puts the responses together.

    ``results`` is the array in the response with the results of the items. If the results of one
    item may come in several parts, ``inner_results`` is the array in a result that continues, and
    ``name`` is the field by which a result is known to continue the one before, beside the id of
    its topic where there is one.
    """

    items: Items
    results: str
    inner_results: str = ""
    name: str = "name"

    @property
    def at_once(self) -> int:
        return self.items.at_once

    def parts(self, body: Message) -> Iterator[Message]:
        return self.items.parts(body)

    def answer(self, api_name: str, version: int) -> "ItemAnswer":
        return ItemAnswer(self, api_name, version)


class ItemAnswer:
    """The response to one divided request."""

    def __init__(self, division: ItemDivision, api_name: str, version: int) -> None:
        self._division = division
        self._schema = codec.schema_of(api_name, version, EntityType.response)
        self._flexible = bool(self._schema.__flexible__)
        array = shape_of(self._schema, division.results)
        self._encode_result = codec.element_encoder(array, self._flexible)
        self._encode_inner: Encoder | None = None
        if division.inner_results:
            inner = shape_of(array.nested, division.inner_results)
            self._encode_inner = codec.element_encoder(inner, self._flexible)
        self._frame: Message | None = None
        """The response that has the fields beside the results."""
        self._results = 0
        self._encoded = bytearray()
        self._open: Message | None = None
        """The result that the next part may continue, without its inner results."""
        self._open_count = 0
        self._open_encoded = bytearray()

    @property
    def size(self) -> int:
        return len(self._encoded) + len(self._open_encoded)

    def add(self, response: Message) -> bool:
        """Take the response to the next part. If the whole request failed, no part follows."""
        if self._frame is None or response.get("error_code"):
            self._frame = response
        for result in response[self._division.results] or ():
            if self._encode_inner is None:
                self._results += 1
                self._encode_result(self._encoded, result)
            else:
                self._add_inner(result, self._encode_inner)
        return not response.get("error_code")

    def encode(self) -> Steps[Buffers]:
        self._close()
        assert self._frame is not None, "a request has at least one part"
        results = array_of(self._results, b"", self._flexible)
        values = {**self._frame, self._division.results: Encoded(results)}
        before, after = encode_around(self._schema, values, self._division.results)
        yield
        return [before, memoryview(self._encoded), after]

    def _add_inner(self, result: Message, encode: Encoder) -> None:
        division = self._division
        if self._open is None or not self._goes_on(self._open, result):
            self._close()
            self._open = result
        inner = result[division.inner_results]
        self._open_count += len(inner)
        for one in inner:
            encode(self._open_encoded, one)

    def _goes_on(self, open_result: Message, result: Message) -> bool:
        """Return whether a result continues the open one: it is of the same name or the same id."""
        name = self._division.name
        return (open_result.get(name), open_result.get("topic_id")) == (
            result.get(name),
            result.get("topic_id"),
        )

    def _close(self) -> None:
        if self._open is None:
            return
        inner = array_of(self._open_count, self._open_encoded, self._flexible)
        self._results += 1
        result = {**self._open, self._division.inner_results: Encoded(inner)}
        self._encode_result(self._encoded, result)
        self._open, self._open_count, self._open_encoded = None, 0, bytearray()
