"""Mutual TLS of one raft connection, without a socket: bytes in, bytes out (P9).

It works on memory buffers, so that only the connection reads and writes its socket: nothing stays
hidden in the TLS library's own buffer while epoll says that there is nothing to read.
"""

import ssl
from typing import Any, Final

from quorate.common.tls.identity import Principal, Security
from quorate.common.tls.renewable import SecuritySource, current

_RECORD_BYTES: Final = 16 << 10
"""The most that TLS encrypts at once; a larger buffer would be allocated in vain."""


class TlsError(Exception):
    """The handshake failed, or what came is not TLS; the message says why."""


class TlsContexts:
    """The contexts that all connections of a voter share. They are made anew when its certificate
    is renewed.
    """

    def __init__(self, source: SecuritySource) -> None:
        self._source = source
        self._used: Security | None = None
        self._renew()

    def _renew(self) -> None:
        security = current(self._source)
        assert security is not None
        if security is self._used:
            return
        self._used = security
        self._accepting = _context(ssl.PROTOCOL_TLS_SERVER, security)
        self._dialling = _context(ssl.PROTOCOL_TLS_CLIENT, security)
        # A pair of voters connects once and stays connected, so sessions are never resumed.
        self._accepting.num_tickets = 0

    def stream(self, *, accepted: bool) -> "TlsStream":
        self._renew()
        return TlsStream(self._accepting if accepted else self._dialling, accepted=accepted)


class TlsStream:
    """One side of one connection. ``take_outgoing`` returns what it wants to send."""

    def __init__(self, context: ssl.SSLContext, *, accepted: bool) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=accepted)
        self.principal: Principal | None = None
        """The peer, once the handshake is done; the cluster's authority has signed its
        certificate.
        """

    def handshake(self) -> bool:
        """Continue as far as the received bytes allow; return whether it is done.

        Raises:
            TlsError: refused by either side; an alert for the peer may lie in ``take_outgoing``.
        """
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise TlsError(_reason(error)) from error
        self.principal = _principal(self._tls)
        return True

    def receive(self, data: bytes | memoryview) -> None:
        """Take bytes that came from the socket."""
        self._incoming.write(data)

    def decrypted(self) -> bytes:
        """Return all plain bytes of what was received so far.

        Raises:
            TlsError: not TLS, forged, or the peer refused us.
        """
        parts = []
        try:
            # Asked for more than there is, the library raises, which is slower than decrypting.
            while self._incoming.pending or self._tls.pending():
                part = self._tls.read(_RECORD_BYTES)
                if not part:
                    break
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise TlsError(_reason(error)) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def encrypt(self, data: bytes) -> None:
        """Encrypt ``data`` into ``take_outgoing``.

        Raises:
            TlsError: the connection is broken.
        """
        view = memoryview(data)
        try:
            while view:
                view = view[self._tls.write(view) :]
        except ssl.SSLError as error:
            raise TlsError(_reason(error)) from error

    def take_outgoing(self) -> bytes:
        """Return the bytes that are to be sent now."""
        return self._outgoing.read()


def _context(protocol: int, security: Security) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # Identity lies in the certificate, see ``Principal``.
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=security.authority.decode())
    context.load_cert_chain(security.keystore)
    return context


def _principal(tls: ssl.SSLObject) -> Principal:
    certificate: dict[str, Any] = dict(tls.getpeercert() or {})
    names = certificate.get("subjectAltName", ())
    subject = certificate.get("subject", ())
    common_names = [value for part in subject for key, value in part if key == "commonName"]
    return Principal(
        frozenset(value for kind, value in names if kind == "DNS"),
        common_names[0] if common_names else "",
    )


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    reason = (error.reason or str(error)).lower().replace("_", " ")
    return f"TLS failed: {reason}"
