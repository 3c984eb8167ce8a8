"""What consumers say to each other, as Kafka 4.3.1's ``ConsumerProtocol`` writes it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.coordinator.groups.state.embedded_protocol import (
    Assignment,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from quorate.broker.coordinator.shards.coordinator_records import UnknownRecord

SUBSCRIPTION = bytes.fromhex(
    "00030000000200016100016200000001090000000100016100000002000000000000000100000007000172"
)
ASSIGNMENT = bytes.fromhex("000300000001000161000000020000000100000000ffffffff")
OWNED = {"a": frozenset({0, 1})}


def test_subscriptions_are_read_in_all_versions() -> None:
    topics = frozenset({"a", "b"})
    assert read_subscription(SUBSCRIPTION) == Subscription(3, topics, OWNED, "r")
    later = b"\0\7" + SUBSCRIPTION[2:] + b"what later versions add"
    assert read_subscription(later) == Subscription(3, topics, OWNED, "r")
    first = b"\0\0" + SUBSCRIPTION[2:17]
    assert read_subscription(first) == Subscription(0, topics, {}, None)
    second = b"\0\1" + SUBSCRIPTION[2:-7]
    assert read_subscription(second) == Subscription(1, topics, OWNED, None)


def test_assignments_are_read_and_written() -> None:
    assert read_assignment(ASSIGNMENT) == Assignment(OWNED, b"")
    assert read_assignment(b"") == Assignment({}, b"")
    assert read_assignment(write_assignment(1, OWNED)) == Assignment(OWNED, b"")
    in_order = ASSIGNMENT[:13] + ASSIGNMENT[17:21] + ASSIGNMENT[13:17] + ASSIGNMENT[21:]
    assert write_assignment(3, OWNED) == in_order


@pytest.mark.parametrize("read", [read_subscription, read_assignment])
@given(data=st.binary(min_size=1) | st.binary().map(lambda tail: b"\0\1\0\0\0\1" + tail))
def test_what_is_malformed_is_refused_and_nothing_else_happens(read: "object", data: bytes) -> None:
    assert callable(read)
    try:
        read(data)
    except UnknownRecord:
        return


@pytest.mark.parametrize("end", range(2, len(SUBSCRIPTION)))
def test_a_subscription_that_is_cut_off_is_refused(end: int) -> None:
    with pytest.raises(UnknownRecord):
        read_subscription(SUBSCRIPTION[:end])


def test_an_array_that_cannot_be_there_is_refused_at_once() -> None:
    with pytest.raises(UnknownRecord, match="array of 2147483647 elements"):
        read_subscription(b"\0\1\x7f\xff\xff\xff" + bytes(100))
