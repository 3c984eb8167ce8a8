"""Who was refused is said once, whatever is sent, and grpc's own words are read for it."""

import logging

import pytest

from quorate.common.grpc_support.grpc_log import GONE_AT_ONCE, HandshakeLog
from quorate.common.grpc_support.refusal_log import FORGET_AFTER_S, MAX_PEERS, RefusalLog, peer_host


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def refusals(clock: Clock, caplog: pytest.LogCaptureFixture) -> RefusalLog:
    caplog.set_level(logging.WARNING)
    return RefusalLog("test port", clock)


def test_each_peer_is_said_once(refusals: RefusalLog, caplog: pytest.LogCaptureFixture) -> None:
    for attempt in range(3):
        refusals.refused("10.0.0.1", f"attempt {attempt}")
        refusals.refused("10.0.0.2", f"attempt {attempt}")
    assert caplog.messages == [
        "test port: refused 10.0.0.1: attempt 0",
        "test port: refused 10.0.0.2: attempt 0",
    ]


def test_a_peer_that_got_in_is_news_again(
    refusals: RefusalLog, caplog: pytest.LogCaptureFixture
) -> None:
    refusals.refused("10.0.0.1", "no")
    refusals.accepted("10.0.0.1")
    refusals.refused("10.0.0.1", "no again")
    assert len(caplog.messages) == 2


def test_so_it_is_after_an_hour(
    refusals: RefusalLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    refusals.refused("10.0.0.1", "no")
    clock.now_s += FORGET_AFTER_S + 1
    refusals.refused("10.0.0.1", "still no")
    assert len(caplog.messages) == 2


def test_many_peers_do_not_fill_log_or_memory(
    refusals: RefusalLog, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(10 * MAX_PEERS):
        refusals.refused(f"2001:db8::{number:x}", "no")
    assert len(caplog.messages) == MAX_PEERS + 1
    assert f"more than {MAX_PEERS} peers" in caplog.messages[-1]


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:127.0.0.1:5000", "127.0.0.1"),
        ("ipv6:%5B::1%5D:5000", "::1"),
        ("ipv6:[fe80::1]:5000", "[fe80::1]"),
        ("unix:", "unix:"),
    ],
)
def test_hosts_are_found_in_grpcs_peers(peer: str, host: str) -> None:
    assert peer_host(peer) == host


# --- grpc's log -----------------------------------------------------------------------------------

HEAD = b"I1121 16:31:48.924471   27487 "
ARGS = (
    b"args={endpoint=0x7f, args={grpc.internal.endpoint_local_address=ipv4:127.0.0.1:7101, "
    b"grpc.internal.endpoint_peer_address=ipv4:10.0.0.9:41106, x=1}, exit_early=0}"
)
FAILED = [
    HEAD + b"handshaker.cc:80] handshake_manager 0x7f3: adding handshaker security at index 1",
    HEAD + b"handshaker.cc:155] CallNextHandshakerLocked: error=OK shutdown=false index=1, " + ARGS,
    HEAD + b"ssl_transport_security.cc:2563] Handshake failed with error SSL_ERROR_SSL: error:1",
    HEAD + b"handshaker.cc:155] CallNextHandshakerLocked: error=UNKNOWN: Ssl handshake failed: OK",
    b"=== Source Location Trace: === ",
    b"src/core/util/status_helper.cc:68",
    b" shutdown=false index=2, " + ARGS,
    HEAD + b"channel_trace.h:396] handshake manager 0x7f: Failed with error: UNKNOWN: Ssl",
    b"=== Source Location Trace: === ",
    b"src/core/util/status_helper.cc:68",
    b"",
]


def test_a_failed_handshake_names_the_peer_and_is_not_passed_on(
    refusals: RefusalLog, caplog: pytest.LogCaptureFixture
) -> None:
    log = HandshakeLog({7101: refusals})
    passed_on = [line for _ in range(2) for line in FAILED if log.take(line)]
    assert caplog.messages == ["test port: refused 10.0.0.9: Ssl handshake failed"]
    assert passed_on == []


def test_a_peer_that_was_gone_too_soon_to_have_an_address_is_said_too(
    refusals: RefusalLog, caplog: pytest.LogCaptureFixture
) -> None:
    log = HandshakeLog({7101: refusals})
    for line in FAILED:
        log.take(line.replace(b"ipv4:10.0.0.9:41106", b""))
    assert caplog.messages == [f"test port: refused {GONE_AT_ONCE}: Ssl handshake failed"]


def test_handshakes_of_our_own_connections_elsewhere_are_not_refusals(
    refusals: RefusalLog, caplog: pytest.LogCaptureFixture
) -> None:
    log = HandshakeLog({7102: refusals})
    for line in FAILED:
        log.take(line)
    assert caplog.messages == []


def test_what_is_not_about_handshakes_is_passed_on(refusals: RefusalLog) -> None:
    log = HandshakeLog({7101: refusals})
    error = b"E1121 16:31:48.924471   27487 server.cc:12] No room for new connections"
    others = [b"a library's own words", b"and more", error, b" its second line"]
    lines = [others[0], *FAILED, others[1], FAILED[0], *others[2:]]
    assert [line for line in lines if log.take(line)] == others


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (
            "UNKNOWN: Ssl handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: error:1000009c:"
            "SSL routines:OPENSSL_internal:HTTP_REQUEST: Invalid certificate verification context"
            ": OK",
            "TLS failed: http request",
        ),
        (
            "UNKNOWN: Ssl handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: error:1000007d:"
            "SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: certificate has expired: OK",
            "its certificate is refused: certificate has expired",
        ),
        ("UNAVAILABLE: Handshake read failed", "UNAVAILABLE: Handshake read failed"),
    ],
)
def test_the_reason_is_said_in_words(
    refusals: RefusalLog, caplog: pytest.LogCaptureFixture, why: str, said: str
) -> None:
    log = HandshakeLog({7101: refusals})
    log.take(HEAD + b"handshaker.cc:155] CallNextHandshakerLocked: error=" + why.encode())
    log.take(b" shutdown=false index=2, " + ARGS)
    assert caplog.messages == [f"test port: refused 10.0.0.9: {said}"]
