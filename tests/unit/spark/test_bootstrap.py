"""DescribeCluster v0 by hand: understood by others, and refusing what is none."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.client.bootstrap import (
    BootstrapError,
    BrokerEndpoints,
    ClusterEndpoints,
    MalformedResponse,
    decode_response,
    discover,
    parse_servers,
)
from tests.support.describe_cluster import DescribeClusterServer, describe_cluster_response

BROKERS = (
    BrokerEndpoints(0, "127.0.0.1:9092", "127.0.0.1:9192"),
    BrokerEndpoints(7, "broker.example:9093", "broker.example:19193"),
    BrokerEndpoints(8, "other.example:9094", ""),
)
RESPONSE = describe_cluster_response(BROKERS, cluster_id="c-1", controller_id=7)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def test_discovers_the_grpc_endpoints() -> None:
    with DescribeClusterServer(lambda: RESPONSE) as server:
        assert discover(server.address) == ClusterEndpoints("c-1", 7, BROKERS)
    # Request header v2 of API 60 version 0, correlation id 1, and a body of one boolean.
    assert server.requests == [b"\x00\x3c\x00\x00\x00\x00\x00\x01\x00\x07quorate\x00\x00\x00"]


def test_the_next_server_is_asked_when_one_is_down() -> None:
    with DescribeClusterServer(lambda: RESPONSE) as server:
        assert discover(f"127.0.0.1:{free_port()},{server.address}").cluster_id == "c-1"


def test_the_error_names_every_server_tried() -> None:
    down = free_port()
    with (
        DescribeClusterServer(lambda: b"HTTP/1.1 400 Bad Request") as server,
        pytest.raises(BootstrapError) as refusal,
    ):
        discover(f"127.0.0.1:{down},{server.address}")
    assert f"127.0.0.1:{down} (" in str(refusal.value)
    assert f"{server.address} (correlation id" in str(refusal.value)


def test_a_silent_server_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(BootstrapError, match="timed out"):
            discover(address, timeout_ms=60)


@given(st.data())
def test_truncated_responses_are_refused(data: st.DataObject) -> None:
    size = data.draw(st.integers(0, len(RESPONSE) - 6))
    with pytest.raises(MalformedResponse):
        decode_response(RESPONSE[:size])


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_decoded(tail: bytes) -> None:
    try:
        decode_response(RESPONSE[:5] + tail)
    except MalformedResponse:
        return


def test_an_error_code_is_told() -> None:
    with pytest.raises(MalformedResponse, match="Kafka error code 31"):
        decode_response(
            b"\x00\x00\x00\x01\x00" + b"\x00\x00\x00\x00" + b"\x00\x1f\x00" + b"\x00" * 9
        )


def test_who_is_asked_to_log_in_is_told_how() -> None:
    with pytest.raises(MalformedResponse, match=r"it asks who you are: set security\.protocol"):
        decode_response(
            b"\x00\x00\x00\x01\x00" + b"\x00\x00\x00\x00" + b"\x00\x22\x00" + b"\x00" * 9
        )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1", [("a", 1)]),
        (" a:1 , b ", [("a", 1), ("b", 9092)]),
        ("[::1]:5,[::1]", [("::1", 5), ("::1", 9092)]),
    ],
)
def test_server_lists(text: str, expected: list[tuple[str, int]]) -> None:
    assert parse_servers(text) == expected


@pytest.mark.parametrize("text", ["", " , ", ":9092", "a:b", "a:70000"])
def test_refused_server_lists(text: str) -> None:
    with pytest.raises(ValueError, match="bootstrap"):
        parse_servers(text)
