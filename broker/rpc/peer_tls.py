"""TLS of the streams between brokers, with the certificates that they have for each other."""

import ssl
from collections.abc import Mapping
from typing import Any, Final

from quorate.common.tls.identity import Principal, Role, Security, SecurityError, node_name
from quorate.common.tls.renewable import RenewableSecurity
from quorate.common.types import BrokerId

HANDSHAKE_TIMEOUT_S: Final = 5.0


class PeerTls:
    """The TLS context of a listener for brokers. It is a new one after a renewal."""

    def __init__(self, security: RenewableSecurity) -> None:
        self._security = security
        self._used = security.current
        self.context = _server_context(self._used)

    def renewed(self) -> bool:
        """Look at the files, and return whether ``context`` is a new one."""
        newest = self._security.current
        if newest is self._used:
            return False
        self._used = newest
        self.context = _server_context(newest)
        return True


def _server_context(security: Security) -> ssl.SSLContext:
    """Return a context that nobody passes without a certificate of the authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    return _with_certificates(context, security)


def connection_context(security: Security) -> ssl.SSLContext:
    """Return a context for connections to brokers. They prove a name, see ``name_of``."""
    return _with_certificates(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), security)


def name_of(broker_id: BrokerId) -> str:
    """Return the name that only that broker's certificate carries."""
    return node_name(Role.BROKER, broker_id)


def _with_certificates(context: ssl.SSLContext, security: Security) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(cadata=security.authority.decode())
        context.load_cert_chain(security.keystore)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise SecurityError(f"{security.keystore}: TLS does not take it: {error}") from error
    return context


def principal_of_certificate(certificate: Mapping[str, Any]) -> Principal:
    """Return who a verified certificate names. ``certificate``: as ``SSLObject.getpeercert``."""
    names = frozenset(name for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS")
    parts = (part for parts in certificate.get("subject", ()) for part in parts)
    return Principal(names, next((value for kind, value in parts if kind == "commonName"), ""))
