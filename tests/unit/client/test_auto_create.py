"""A topic's error code out of a Metadata v4 response."""

import struct

import pytest

from quorate.client.auto_create_request import decode_error
from quorate.client.bootstrap import MalformedResponse


def text(value: str | None) -> bytes:
    if value is None:
        return struct.pack(">h", -1)
    return struct.pack(">h", len(value)) + value.encode()


def response(code: int, topics: int = 1) -> bytes:
    """Up to the error code: what follows is not read."""
    brokers = [
        struct.pack(">i", id_) + text("host") + struct.pack(">i", 9092) + text(rack)
        for id_, rack in ((1, None), (2, "a rack"))
    ]
    head = struct.pack(">iii", 1, 0, len(brokers)) + b"".join(brokers)
    return head + text("the cluster") + struct.pack(">iih", 1, topics, code)


@pytest.mark.parametrize("code", [0, 3, 5, 29, -1])
def test_the_code_of_the_topic(code: int) -> None:
    assert decode_error(response(code) + b"and more") == code


def test_what_is_no_such_response_is_refused() -> None:
    whole = response(5)
    for size in range(len(whole)):
        with pytest.raises(MalformedResponse):
            decode_error(whole[:size])
    with pytest.raises(MalformedResponse, match="not of the one topic"):
        decode_error(response(0, topics=2))
