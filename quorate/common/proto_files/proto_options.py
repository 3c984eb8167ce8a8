"""Options of .proto files: those of protobuf itself are set, and others are kept as they are
written (``uninterpreted_option``), because only those who know their extensions can read them.
"""

from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from quorate.common.proto_files.proto_tokens import NUMBER, TEXT, WORD, Tokens, integer

_FLOATS: Final = (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE)


def set_option(options: Message, parts: list[str], tokens: Tokens) -> None:
    """Set the option whose name has these parts to the value that comes next.

    Raises:
        InvalidSchema: there is no such option, or the value is not of its type.
    """
    if any(part.startswith("(") for part in parts):
        _set_uninterpreted(options, parts, tokens)
        return
    holder: Any = options
    for part in parts[:-1]:
        field = holder.DESCRIPTOR.fields_by_name.get(part)
        if field is None or field.message_type is None or field.is_repeated:
            raise tokens.error(f"{'.'.join(parts)} is no option")
        holder = getattr(holder, part)
    field = holder.DESCRIPTOR.fields_by_name.get(parts[-1])
    if field is None or field.message_type is not None:
        raise tokens.error(f"{'.'.join(parts)} is no option")
    try:
        value = _value(field, tokens)
        if field.is_repeated:
            getattr(holder, field.name).append(value)
        else:
            setattr(holder, field.name, value)
    except (TypeError, ValueError, KeyError):
        raise tokens.error(f"the value of {'.'.join(parts)} is not of its type") from None


def _value(field: FieldDescriptor, tokens: Tokens) -> Any:  # noqa: ANN401 - of any scalar type
    if field.type == FieldDescriptor.TYPE_STRING:
        return tokens.text_value().decode("utf-8", "replace")
    sign = -1 if tokens.skip("-") else 1
    text = tokens.take().text
    if field.type == FieldDescriptor.TYPE_BOOL:
        return {"true": True, "false": False}[text]
    if field.enum_type is not None:
        return field.enum_type.values_by_name[text].number
    if field.type in _FLOATS:
        return sign * float(text)
    number = integer(text)
    if number is None:
        raise ValueError(text)
    return sign * number


def _set_uninterpreted(options: Any, parts: list[str], tokens: Tokens) -> None:  # noqa: ANN401
    made: descriptor_pb2.UninterpretedOption = options.uninterpreted_option.add()
    for part in parts:
        made.name.add(name_part=part.strip("()"), is_extension=part.startswith("("))
    if tokens.next.kind == TEXT:
        made.string_value = tokens.text_value()
    elif tokens.next.text == "{":
        made.aggregate_value = _aggregate(tokens)
    elif tokens.next.kind == WORD:
        made.identifier_value = tokens.take().text
    else:
        _set_number(made, tokens)


def _set_number(made: descriptor_pb2.UninterpretedOption, tokens: Tokens) -> None:
    is_negative = tokens.skip("-")
    token = tokens.take()
    number = integer(token.text)
    if token.kind not in (NUMBER, WORD) or (number is None and token.text[:2] in ("0x", "0X")):
        raise tokens.error("expected the value of an option")
    try:
        if number is None:
            made.double_value = float(token.text) * (-1 if is_negative else 1)
        elif is_negative:
            made.negative_int_value = -number
        else:
            made.positive_int_value = number
    except ValueError:
        raise tokens.error("the value of an option is out of range") from None


def _aggregate(tokens: Tokens) -> str:
    """Return what is between braces, as it is written."""
    tokens.expect("{")
    begin, depth, end = tokens.next.begin, 1, tokens.next.begin
    while depth:
        if not tokens.next.text:
            raise tokens.error("expected '}'")
        token = tokens.take()
        if token.kind != TEXT:
            depth += {"{": 1, "}": -1}.get(token.text, 0)
        if depth:
            end = token.end
    return tokens.source(begin, end)
