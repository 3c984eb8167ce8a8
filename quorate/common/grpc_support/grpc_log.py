"""Filters what grpc's core writes to standard error: a line per failed handshake, without the peer.

Only its trace of handshakes names the peer. So standard error of the C code goes through a pipe: a
refused peer is logged once, the rest of the trace is dropped, and real errors are passed on.
"""

import faulthandler
import fcntl
import os
import re
import sys
import threading
from collections.abc import Mapping
from typing import Final

from quorate.common.grpc_support.refusal_log import RefusalLog, peer_host

_HANDSHAKES: Final = "handshaker"
_QUIET: Final = "ERROR"
_PIPE_BYTES: Final = 1 << 20
_MAX_LINE_BYTES: Final = 64 << 10
_LOG_LINE: Final = re.compile(rb"([IWEF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [\w./-]+:\d+\] ?")
_HANDSHAKE_ENDED: Final = re.compile(rb"CallNextHandshakerLocked: error=(?!OK )(.*)")
_LOCAL: Final = re.compile(rb"endpoint_local_address=([^,}]+)")
_PEER: Final = re.compile(rb"endpoint_peer_address=([^,}]*)")
_TLS_ERROR: Final = re.compile(r"OPENSSL_internal:([A-Z0-9_]+): (.*?)(?:: OK)?$")
_OF_HANDSHAKES: Final = (b"ssl_transport_security.cc", b"handshaker.cc", b"channel_trace.h")
_GOES_ON: Final = (b"=== Source Location", b"src/", b" shutdown=")
"""The beginnings of the further lines of such a message, besides empty lines."""

GONE_AT_ONCE: Final = "somebody who was gone before their address was asked for"
"""Stands for a peer that resets its connection while it waits to be accepted: grpc asks the kernel
for the address later than that, and the kernel has forgotten it.
"""


class HandshakeLog:
    """Finds refused peers in the lines that grpc's core writes."""

    def __init__(self, ports: Mapping[int, RefusalLog]) -> None:
        """Create the log for the servers on ``ports``.

        This process's own connections to other servers fail elsewhere. The mapping is read for each
        refusal: a port may be added when it is known.
        """
        self._ports = ports
        self._reason: bytes | None = None
        self._is_dropped = False

    def take(self, line: bytes) -> bool:
        """Read one line, and return whether people should see it, too."""
        found = _LOG_LINE.match(line)
        if found is not None:
            ended = _HANDSHAKE_ENDED.search(line)
            self._reason = None if ended is None else ended[1]
            ours = any(name in found[0] for name in _OF_HANDSHAKES)
            self._is_dropped = found[1] == b"I" or ours
            is_passed_on = not self._is_dropped
        else:
            goes_on = not line or line.startswith(_GOES_ON)
            is_passed_on = not (self._is_dropped and goes_on)
        if self._reason is not None:
            self._take_peer(line, self._reason)
        return is_passed_on

    def _take_peer(self, line: bytes, reason: bytes) -> None:
        local, peer = _LOCAL.search(line), _PEER.search(line)
        if local is None or peer is None:
            return
        self._reason = None
        port = local[1].rpartition(b":")[2]
        refusals = self._ports.get(int(port)) if port.isdigit() else None
        if refusals is not None:
            why = reason.partition(b" shutdown=")[0].decode(errors="replace")
            host = peer_host(peer[1].decode(errors="replace")) or GONE_AT_ONCE
            refusals.refused(host, _readable(why))


def trace_handshakes() -> None:
    """Ask grpc for its trace of handshakes. Call it before anything imports grpc.

    Where the user has asked grpc for a log of its own, nothing is changed. It does not count that
    the command which started this process wanted grpc to be quiet.
    """
    if "GRPC_TRACE" not in os.environ and os.environ.get("GRPC_VERBOSITY", _QUIET) == _QUIET:
        os.environ.pop("GRPC_VERBOSITY", None)
        os.environ["GRPC_TRACE"] = _HANDSHAKES


def quiet_handshakes() -> None:
    """Keep grpc's core from logging each attempt of a client, for errors say why. A user's own
    setting stays.
    """
    if "GRPC_TRACE" not in os.environ and "GRPC_VERBOSITY" not in os.environ:
        os.environ["GRPC_VERBOSITY"] = _QUIET


def divert_grpc_log(ports: Mapping[int, RefusalLog]) -> None:
    """Read the C code's standard error here from now on. Python's own goes where it went before.

    ``ports`` is as in ``HandshakeLog``. Call it before logging is set up. It does nothing without
    ``trace_handshakes``.
    """
    if os.environ.get("GRPC_TRACE") != _HANDSHAKES:
        return
    outside = os.dup(2)
    reader, writer = os.pipe()
    # A flood of refusals loses lines rather than time: grpc must never wait for this log.
    os.set_blocking(writer, False)
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    sys.stderr.flush()
    os.dup2(writer, 2)
    os.close(writer)
    sys.stderr = os.fdopen(os.dup(outside), "w", buffering=1)
    # Nobody reads what the C code writes while it dies, but the place where it died can be shown.
    faulthandler.enable(outside)
    log = HandshakeLog(ports)
    threading.Thread(
        target=_read_lines, args=(reader, outside, log), name="grpc-log", daemon=True
    ).start()


def _read_lines(reader: int, outside: int, log: HandshakeLog) -> None:
    rest = b""
    while data := os.read(reader, _MAX_LINE_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        passed_on = [line for line in lines if log.take(line)]
        if passed_on:
            os.write(outside, b"\n".join(passed_on) + b"\n")
        if len(rest) > _MAX_LINE_BYTES:
            rest = b""


def _readable(why: str) -> str:
    """Return the reason in the words that the raft port uses, as far as possible."""
    found = _TLS_ERROR.search(why)
    if found is None:
        return why.removeprefix("UNKNOWN: ").removesuffix(": OK").strip()
    if found[1] == "CERTIFICATE_VERIFY_FAILED":
        return f"its certificate is refused: {found[2]}"
    return f"TLS failed: {found[1].lower().replace('_', ' ')}"
