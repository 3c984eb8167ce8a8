"""Reads and writes JSON of schemas: what is no JSON by RFC 8259 is refused."""

import json
from typing import Any, NoReturn

from quorate.common.schema_errors import InvalidSchema


def load_json(text: str) -> Any:  # noqa: ANN401 - any JSON
    """Return what a text says.

    Raises:
        InvalidSchema: it is no JSON, or has a number that is none or has thousands of digits.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError as error:  # JSONDecodeError is one.
        raise InvalidSchema(f"the schema is not JSON: {error}") from None


def canonical_json(document: Any, *, sort_keys: bool = False) -> str:  # noqa: ANN401 - as above
    """Return a document without blanks.

    Raises:
        InvalidSchema: a number in it is larger than any float.
    """
    try:
        return json.dumps(
            document,
            separators=(",", ":"),
            ensure_ascii=False,
            sort_keys=sort_keys,
            allow_nan=False,
        )
    except ValueError as error:
        raise InvalidSchema(f"the schema has a number out of range: {error}") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
