"""TLS of the Kafka listeners. A context is loaded from PEM files, and again when they change."""

import logging
import ssl
from pathlib import Path
from typing import Final

from quorate.broker.config.security import (
    SSL_CLIENT_AUTH,
    SSL_KEYSTORE_LOCATION,
    SSL_TRUSTSTORE_LOCATION,
)
from quorate.common.configuration import Values
from quorate.common.tls.identity import SecurityError
from quorate.common.tls.keystore import load_keystore, load_truststore

log = logging.getLogger(__name__)

_VERIFY: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

_FileStates = tuple[tuple[int, int, int], ...]
"""The modification time, the size and the inode of each file."""


class ListenerTls:
    """The TLS context for new connections. Existing connections keep the context with which they
    began.
    """

    def __init__(self, config: Values) -> None:
        """Load the files for the first time.

        Raises:
            SecurityError: the files cannot be used. The message names the key, the file, and what
                to do.
        """
        self._keystore = config[SSL_KEYSTORE_LOCATION]
        self._truststore = config[SSL_TRUSTSTORE_LOCATION]
        self._client_auth = config[SSL_CLIENT_AUTH]
        self._require_files()
        self._seen = self._file_states()
        self.context = self._load()

    def renewed(self) -> bool:
        """Check the files, and return whether ``context`` is a new one.

        If a new file is broken, the old certificates stay in use, and the error is logged once.
        """
        seen = self._file_states()
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            self.context = self._load()
        except SecurityError as error:
            log.error("the listeners keep their certificates, the changed ones are bad: %s", error)
            return False
        log.info("new certificates of the listeners are in use: %s", self._keystore)
        return True

    def _require_files(self) -> None:
        if not self._keystore:
            raise SecurityError(
                f"{SSL_KEYSTORE_LOCATION.name} is missing, and a listener with TLS needs it: give "
                "a PEM file with private key and certificate chain, as `quorate certs` makes it"
            )
        if self._client_auth != "none" and not self._truststore:
            raise SecurityError(
                f"{SSL_TRUSTSTORE_LOCATION.name} is missing, and "
                f"{SSL_CLIENT_AUTH.name}={self._client_auth} needs it: give a PEM file with the "
                "authorities whose clients' certificates are believed"
            )

    def _file_states(self) -> _FileStates:
        return tuple(_state(path) for path in (self._keystore, self._truststore) if path)

    def _load(self) -> ssl.SSLContext:
        load_keystore(SSL_KEYSTORE_LOCATION.name, Path(self._keystore))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._keystore)
            if self._truststore:
                load_truststore(SSL_TRUSTSTORE_LOCATION.name, Path(self._truststore))
                context.load_verify_locations(self._truststore)
        except (ssl.SSLError, OSError) as error:
            raise SecurityError(
                f"{SSL_KEYSTORE_LOCATION.name}={self._keystore}: TLS does not take it: {error}"
            ) from error
        context.verify_mode = _VERIFY[self._client_auth]
        return context


def _state(path: str) -> tuple[int, int, int]:
    try:
        status = Path(path).stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_mtime_ns, status.st_size, status.st_ino)
