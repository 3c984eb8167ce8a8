"""One listener as its connections need it: how clients show who they are."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker.security.config import (
    CONNECTIONS_MAX_REAUTH_MS,
    SASL_ENABLED_MECHANISMS,
    SASL_SERVER_MAX_RECEIVE_SIZE,
    SSL_CLIENT_AUTH,
    SSL_PRINCIPAL_MAPPING_RULES,
)
from broker.security.listeners import ListenerConfig, SecurityProtocol, configured_listeners
from broker.security.logins import Logins
from broker.security.principal import ANONYMOUS, RESERVED_NAMES, KafkaPrincipal
from broker.security.principal_mapping import PrincipalMapping
from broker.security.sasl import SUPPORTED, SaslOptions, SaslSession
from metadata_log.configuration import ConfigError, Values
from metadata_log.types import DEFAULT_LISTENER


class Stranger(Exception):
    """A client whose certificate no rule maps to a user."""


@dataclass(slots=True)
class ClientSession:
    """One connection's client: where it came in, and who it is.

    ``sasl`` None: the listener does without.
    """

    client_host: str
    listener: str = DEFAULT_LISTENER
    sasl: SaslSession | None = None
    certified: KafkaPrincipal = ANONYMOUS

    @property
    def principal(self) -> KafkaPrincipal:
        return self.certified if self.sasl is None else self.sasl.principal

    @property
    def is_open(self) -> bool:
        """Whether the client may ask for more than to be let in."""
        return self.sasl is None or self.sasl.authenticated


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """``login_frame_bytes``: the largest frame of a client that has not authenticated."""

    listener: str = DEFAULT_LISTENER
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    mapping: PrincipalMapping | None = None
    sasl: SaslOptions | None = None
    login_frame_bytes: int = 0

    def enter(self, client_host: str, certificate_der: bytes | None) -> ClientSession:
        """A new connection's session. ``certificate_der``: verified by TLS; None: none shown.

        Raises:
            Stranger: the certificate is nobody's.
        """
        sasl = None if self.sasl is None else SaslSession(self.sasl)
        certified = ANONYMOUS
        if certificate_der and self.mapping is not None and sasl is None:
            known = self.mapping.principal_of(certificate_der)
            if known is None:
                raise Stranger("its certificate fits no rule of ssl.principal.mapping.rules")
            if known.name in RESERVED_NAMES:
                raise Stranger(f"its certificate is mapped to {known}, which is nobody's name")
            certified = known
        return ClientSession(client_host, self.listener, sasl, certified)


OPEN_DOOR: Final = Door()
"""Of a listener that lets everybody in."""


def door_of(
    listener: ListenerConfig,
    config: Values,
    logins: Logins,
    draw_nonce: Callable[[], str],
) -> Door:
    """What the configuration asks for at this listener.

    Raises:
        ConfigError: a mechanism is unknown, or a mapping rule malformed.
    """
    shows_certificate = (
        listener.protocol is SecurityProtocol.SSL and config[SSL_CLIENT_AUTH] != "none"
    )
    return Door(
        listener=listener.name,
        protocol=listener.protocol,
        mapping=_mapping(config) if shows_certificate else None,
        sasl=_sasl(config, logins, draw_nonce) if listener.protocol.has_sasl else None,
        login_frame_bytes=config[SASL_SERVER_MAX_RECEIVE_SIZE],
    )


def check_listeners(config: Values) -> None:
    """What the values alone can tell; files are read when the broker starts.

    Raises:
        ConfigError: what is configured makes no listeners; names key, value, and what to do.
    """
    configured_listeners(config)
    _mapping(config)
    _mechanisms(config)


def _mapping(config: Values) -> PrincipalMapping:
    return PrincipalMapping(SSL_PRINCIPAL_MAPPING_RULES.name, config[SSL_PRINCIPAL_MAPPING_RULES])


def _mechanisms(config: Values) -> tuple[str, ...]:
    key = SASL_ENABLED_MECHANISMS
    mechanisms = tuple(filter(None, map(str.strip, config[key].split(","))))
    unknown = [one for one in mechanisms if one not in SUPPORTED]
    if unknown or not mechanisms:
        raise ConfigError(
            f"{key.name}={config[key]}: must be some of {', '.join(SUPPORTED)}, commas between"
        )
    return mechanisms


def _sasl(config: Values, logins: Logins, draw_nonce: Callable[[], str]) -> SaslOptions:
    return SaslOptions(
        mechanisms=_mechanisms(config),
        logins=logins,
        max_reauth_ms=config[CONNECTIONS_MAX_REAUTH_MS],
        draw_nonce=draw_nonce,
    )
