"""Small files in JSON that carry a checksum of themselves, such as the identity of a folder.

The checksum is a field of the object, over all the other fields as this module writes them. So the
files stay readable, and any change of a value, a name or the set of fields is noticed.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from crc32c import crc32c

CHECKSUM: Final = "crc32c"


def encode_checked_json(content: Mapping[str, Any]) -> bytes:
    """Return the file with this content, to which a checksum is added."""
    return _encoded({**content, CHECKSUM: _checksum(content)}) + b"\n"


def decode_checked_json(data: bytes) -> dict[str, Any]:
    """Return the content of the file, without its checksum.

    Raises:
        ValueError: it is not what was written; the message says in what way.
    """
    content = decode_json_object(data)
    if CHECKSUM not in content:
        raise ValueError(f"it has no field {CHECKSUM}")
    checksum = content.pop(CHECKSUM)
    if checksum != _checksum(content):
        raise ValueError("its checksum is wrong")
    if encode_checked_json(content) != data:
        raise ValueError("its bytes are not those that were written")
    return content


def decode_json_object(data: bytes) -> dict[str, Any]:
    """Return the object in a file without a checksum, as earlier releases wrote it.

    Raises:
        ValueError: it is not an object in JSON.
    """
    content = json.loads(data)
    if not isinstance(content, dict):
        raise ValueError("it is not an object in JSON")
    return content


def _checksum(content: Mapping[str, Any]) -> str:
    return f"{crc32c(_encoded(content)):08x}"


def _encoded(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content).encode()
