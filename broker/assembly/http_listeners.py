"""Opens the HTTP listeners of a starting broker according to its configuration."""

from collections.abc import Sequence
from contextlib import AsyncExitStack

from quorate.broker.assembly.kafka_listeners import ListenError, address_taken
from quorate.broker.changes.audit_log import KeepAuditEntries
from quorate.broker.config.http_listeners import HttpAddress, http_address, http_authentication
from quorate.broker.config.security import FAILED_AUTHENTICATION_DELAY_MS
from quorate.broker.http.http_authentication import HttpAuthentication
from quorate.broker.http.http_listener import HttpListener
from quorate.broker.http.http_routes import HttpRoute, ShowRefusal, refusal_as_json
from quorate.broker.metrics.client_metrics import ClientFigures
from quorate.broker.security.credential_provider import CredentialProvider
from quorate.broker.security.listener_security import (
    ListenerConfig,
    SecurityProtocol,
    listener_security_of,
)
from quorate.broker.security.listener_tls import ListenerTls
from quorate.common.configuration import ConfigError, ConfigKey, Values
from quorate.common.types import Endpoint


class HttpListeners:
    """The HTTP listeners of one broker, which share users and the audit log with its others."""

    def __init__(
        self,
        config: Values,
        credentials: CredentialProvider,
        audit_log: KeepAuditEntries,
        figures: ClientFigures,
        cleanup: AsyncExitStack,
    ) -> None:
        """``cleanup`` closes what is opened."""
        self._config = config
        self._credentials = credentials
        self._audit_log = audit_log
        self._figures = figures
        self._cleanup = cleanup

    async def open(
        self,
        key: ConfigKey[str],
        name: str,
        routes: Sequence[HttpRoute],
        *,
        show: ShowRefusal = refusal_as_json,
    ) -> Endpoint | None:
        """Open the listener at the address that ``key`` has. Return the address with the actual
        port, or None if there is none.

        ``name`` is the name of the listener in contexts and logs, such as REGISTRY.

        Raises:
            ListenError: the address is taken, or certificates cannot be used.
        """
        address = http_address(key, self._config)
        if address is None:
            return None
        try:
            tls = ListenerTls(self._config) if address.has_tls else None
            authentication = self._authentication(name, address)
        except ConfigError as error:
            raise ListenError(f"{key.name}: {error}") from error
        self._figures.logins.append(authentication.logins)
        listener = HttpListener(
            name, routes, authentication, self._audit_log, self._config, show=show
        )
        self._cleanup.push_async_callback(listener.stop)
        try:
            return await listener.start(address, tls)
        except OSError as error:
            raise address_taken(key.name, address.endpoint) from error

    def _authentication(self, name: str, address: HttpAddress) -> HttpAuthentication:
        protocol = SecurityProtocol.SSL if address.has_tls else SecurityProtocol.PLAINTEXT
        security = listener_security_of(
            ListenerConfig(name, protocol, address.endpoint),
            self._config,
            self._credentials,
            draw_nonce=str,
        )
        return HttpAuthentication(
            http_authentication(self._config),
            security,
            self._credentials,
            failure_delay_ms=self._config[FAILED_AUTHENTICATION_DELAY_MS],
        )
