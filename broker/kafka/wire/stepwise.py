"""Decoding and encoding of large messages in steps, between which the event loop may do other work.

The layouts and the results are those of ``codec``. Every function here is a generator: it yields
after a few elements or many bytes, and whoever drives it decides whether others have a turn. Small
messages go through ``codec``, because a generator for each array costs more than what it reads.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Final

from quorate.broker.common.steps import Steps
from quorate.broker.kafka.wire import codec
from quorate.broker.kafka.wire.codec import Encoded, Encoder, Message, Shape
from quorate.broker.kafka.wire.kio_layouts import EntityType
from quorate.broker.kafka.wire.primitives import ELEMENTS_IN_A_STEP, Cursor

BYTES_IN_A_STEP: Final = 256 << 10

_DecoderSteps = Callable[[Cursor], Steps[Any]]
_EncoderSteps = Callable[[bytearray, Any], Steps[None]]


def decode_in_steps(name: str, version: int, cursor: Cursor) -> Steps[Message]:
    """Decode the body of a request, like ``codec.decode_request``.

    Raises:
        MalformedRequest: the bytes are not such a request.
    """
    schema = codec.schema_of(name, version, EntityType.request)
    message: Message = yield from _entity_decoder_steps(schema)(cursor)
    return message


def encode_in_steps(name: str, version: int, values: Message, out: bytearray) -> Steps[None]:
    """Append the body of a response to ``out``, like ``codec.encode_response``."""
    schema = codec.schema_of(name, version, EntityType.response)
    yield from _entity_encoder_steps(schema)(out, values)


def element_encoder(name: str, version: int, array: str) -> Encoder:
    """Return the encoder for an element of an array in a response."""
    schema = codec.schema_of(name, version, EntityType.response)
    return codec.element_encoder(shape_of(schema, array), bool(schema.__flexible__))


def array_of(count: int, elements: bytes | bytearray, flexible: bool) -> bytearray:
    """Return an array whose elements are encoded already."""
    array = bytearray()
    codec.append_length(array, count, flexible, ">i")
    array += elements
    return array


def shape_of(schema: Any, name: str) -> Shape:  # noqa: ANN401 - a generated dataclass
    """Return the shape of one field of a message."""
    return next(shape for shape in _shapes(schema) if shape.name == name)


def encode_around(
    schema: Any,  # noqa: ANN401 - a generated dataclass
    values: Message,
    array: str,
) -> tuple[bytes, bytes]:
    """Encode a response of which the elements of one array are encoded already. Return the bytes
    up to the length of that array, and those behind its elements.

    ``values`` has ``Encoded`` with the length in place of the array.
    """
    before, after = bytearray(), bytearray()
    out = before
    flexible = bool(schema.__flexible__)
    for shape in _shapes(schema):
        if shape.tag is None:
            codec.field_encoder(shape, flexible)(out, values.get(shape.name, shape.default))
        if shape.name == array:
            out = after
    if flexible:
        codec.append_tags(after, {})
    return bytes(before), bytes(after)


@functools.cache
def _entity_decoder_steps(schema: Any) -> _DecoderSteps:  # noqa: ANN401 - a generated dataclass
    flexible = bool(schema.__flexible__)
    plain = [
        (
            shape.name,
            codec.field_decoder(shape, flexible),
            _array_decoder_steps(shape, flexible) if shape.is_array else None,
        )
        for shape in _shapes(schema)
        if shape.tag is None
    ]

    def steps(cursor: Cursor) -> Steps[Message]:
        message: Message = {}
        for name, read, in_steps in plain:
            if in_steps is None:
                message[name] = read(cursor)
            else:
                message[name] = yield from in_steps(cursor)
        if flexible:
            cursor.skip_tagged_fields()
        return message

    return steps


def _array_decoder_steps(shape: Shape, flexible: bool) -> _DecoderSteps:
    element = codec.element_decoder(shape, flexible)
    nested = _entity_decoder_steps(shape.nested) if _has_arrays(shape) else None

    def steps(cursor: Cursor) -> Steps[list[Any] | None]:
        length = cursor.array_length(flexible=flexible)
        if length is None:
            codec.check_nullable(shape, shape.nullable)
            return None
        elements: list[Any] = []
        for place in range(1, length + 1):
            elements.append(element(cursor) if nested is None else (yield from nested(cursor)))
            if not place % ELEMENTS_IN_A_STEP:
                yield
        return elements

    return steps


@functools.cache
def _entity_encoder_steps(schema: Any) -> _EncoderSteps:  # noqa: ANN401 - a generated dataclass
    flexible = bool(schema.__flexible__)
    shapes = _shapes(schema)
    arrays = {
        shape.name: _array_encoder_steps(shape, flexible)
        for shape in shapes
        if shape.is_array and shape.tag is None
    }
    plain = [
        (shape.name, shape.default, codec.field_encoder(shape, flexible))
        for shape in shapes
        if shape.tag is None
    ]
    tagged = [
        (shape.name, shape.tag, codec.field_encoder(shape, flexible))
        for shape in shapes
        if shape.tag is not None
    ]

    def steps(out: bytearray, message: Message) -> Steps[None]:
        for name, default, write in plain:
            value = message.get(name, default)
            if value is dataclasses.MISSING:
                raise KeyError(f"{schema.__name__}.{name}")
            if name in arrays and not isinstance(value, Encoded):
                yield from arrays[name](out, value)
            else:
                write(out, value)
        if flexible:
            codec.append_tags(out, codec.tags_of(message, tagged))

    return steps


def _array_encoder_steps(shape: Shape, flexible: bool) -> _EncoderSteps:
    element = codec.element_encoder(shape, flexible)
    nested = _entity_encoder_steps(shape.nested) if _has_arrays(shape) else None

    def steps(out: bytearray, values: Any) -> Steps[None]:  # noqa: ANN401 - a sequence, or None
        codec.append_length(out, None if values is None else len(values), flexible, ">i")
        pause_at = len(out) + BYTES_IN_A_STEP
        for place, value in enumerate(values or (), start=1):
            if nested is None:
                element(out, value)
            else:
                yield from nested(out, value)
            if not place % ELEMENTS_IN_A_STEP or len(out) >= pause_at:
                pause_at = len(out) + BYTES_IN_A_STEP
                yield

    return steps


def _shapes(schema: Any) -> list[Shape]:  # noqa: ANN401 - a generated dataclass
    return [codec.shape_of(field) for field in dataclasses.fields(schema)]


def _has_arrays(shape: Shape) -> bool:
    return shape.nested is not None and any(one.is_array for one in _shapes(shape.nested))
