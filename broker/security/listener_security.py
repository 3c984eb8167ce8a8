"""The listeners of one broker, and how each authenticates its clients, as the configuration says.

A connection gets the ``ListenerSecurity`` of its listener.
"""

import enum
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from quorate.broker.config.listeners import ADVERTISED_LISTENERS, LISTENERS
from quorate.broker.config.oauth import SASL_OAUTHBEARER_JWKS_ENDPOINT_URL
from quorate.broker.config.security import (
    CONNECTIONS_MAX_REAUTH_MS,
    LISTENER_SECURITY_PROTOCOL_MAP,
    SASL_ENABLED_MECHANISMS,
    SASL_SERVER_MAX_RECEIVE_SIZE,
    SSL_CLIENT_AUTH,
    SSL_PRINCIPAL_MAPPING_RULES,
)
from quorate.broker.security.credential_provider import CredentialProvider
from quorate.broker.security.oauth_bearer import OAUTHBEARER
from quorate.broker.security.principal import (
    ANONYMOUS,
    RESERVED_NAMES,
    KafkaPrincipal,
    PrincipalMapping,
)
from quorate.broker.security.sasl_session import SUPPORTED, SaslOptions, SaslSession
from quorate.common.configuration import ConfigError, Values, parse_endpoint
from quorate.common.types import DEFAULT_LISTENER, Endpoint


class SecurityProtocol(enum.Enum):
    """Kafka's four security protocols."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class ListenerConfig(NamedTuple):
    """The configuration of one listener. Without ``advertised``, clients receive the address at
    which the broker listens.
    """

    name: str
    protocol: SecurityProtocol
    endpoint: Endpoint
    advertised: Endpoint | None = None


def configured_listeners(config: Values) -> list[ListenerConfig]:
    """Return all listeners, in the order of ``listeners``. The first one is the default address of
    the broker.

    Raises:
        ConfigError: a value is malformed, a name or an address occurs twice, or a name has no
            listener or no security protocol.
    """
    protocols = _protocols(config[LISTENER_SECURITY_PROTOCOL_MAP])
    listening = _named_endpoints(LISTENERS.name, config[LISTENERS])
    if not listening:
        raise ConfigError(f"{LISTENERS.name} is empty: name at least one listener")
    advertised = _named_endpoints(ADVERTISED_LISTENERS.name, config[ADVERTISED_LISTENERS])
    for name in advertised:
        if name not in listening:
            raise ConfigError(
                f"{ADVERTISED_LISTENERS.name} names {name}, which is none of {LISTENERS.name} "
                f"({', '.join(listening)})"
            )
    taken = Counter(endpoint for endpoint in listening.values() if endpoint.port)
    for endpoint, times in taken.items():
        if times > 1:
            raise ConfigError(f"{LISTENERS.name} names {endpoint} twice: each needs its own port")
    listeners = []
    for name, endpoint in listening.items():
        protocol = protocols.get(name)
        if protocol is None:
            raise ConfigError(
                f"{LISTENERS.name} names {name}, of which {LISTENER_SECURITY_PROTOCOL_MAP.name} "
                f"does not say how it is protected: add {name}:PROTOCOL there"
            )
        listeners.append(ListenerConfig(name, protocol, endpoint, advertised.get(name)))
    return listeners


def _named_endpoints(key: str, value: str) -> dict[str, Endpoint]:
    """Parse NAME://host:port,…. An address without a name gets the name PLAINTEXT."""
    found: dict[str, Endpoint] = {}
    for item in filter(None, map(str.strip, value.split(","))):
        name, separator, _ = item.partition("://")
        name = name.upper() if separator else DEFAULT_LISTENER
        if name in found:
            raise ConfigError(f"{key} names {name} twice: give each listener a name of its own")
        if not name:
            raise ConfigError(f"{key}={value}: {item} has no name before ://")
        found[name] = parse_endpoint(key, item)
    return found


def _protocols(value: str) -> dict[str, SecurityProtocol]:
    key = LISTENER_SECURITY_PROTOCOL_MAP.name
    protocols: dict[str, SecurityProtocol] = {}
    for item in filter(None, map(str.strip, value.split(","))):
        name, colon, protocol = item.partition(":")
        known = {one.value for one in SecurityProtocol}
        if not colon or not name or protocol not in known:
            raise ConfigError(
                f"{key}: {item} must be NAME:PROTOCOL, with one of {', '.join(sorted(known))}"
            )
        protocols[name.upper()] = SecurityProtocol(protocol)
    return protocols


class UnmappedCertificate(Exception):
    """No rule maps the client's certificate to a user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSecurity:
    """The authentication of the clients of one listener.

    ``login_frame_bytes`` is the largest frame that is accepted from a client that has not
    authenticated.
    """

    listener: str = DEFAULT_LISTENER
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    mapping: PrincipalMapping | None = None
    sasl: SaslOptions | None = None
    login_frame_bytes: int = 0

    def new_sasl_session(self) -> SaslSession | None:
        """Return the SASL session of a new connection, or None if the listener has no SASL."""
        return None if self.sasl is None else SaslSession(self.sasl)

    def principal_of_certificate(self, certificate_der: bytes) -> KafkaPrincipal:
        """Return the principal that the listener maps a verified certificate to.

        Raises:
            UnmappedCertificate: no user belongs to the certificate.
        """
        if self.mapping is None:
            return ANONYMOUS
        known = self.mapping.principal_of(certificate_der)
        if known is None:
            raise UnmappedCertificate("its certificate fits no rule of ssl.principal.mapping.rules")
        if known.name in RESERVED_NAMES:
            raise UnmappedCertificate(
                f"its certificate is mapped to {known}, which is nobody's name"
            )
        return known


OPEN_LISTENER: Final = ListenerSecurity()
"""The security of a listener without authentication."""


def listener_security_of(
    listener: ListenerConfig,
    config: Values,
    credentials: CredentialProvider,
    draw_nonce: Callable[[], str],
) -> ListenerSecurity:
    """Return the security of a listener, as the configuration says.

    Raises:
        ConfigError: a mechanism is unknown, or a mapping rule is malformed.
    """
    shows_certificate = (
        listener.protocol is SecurityProtocol.SSL and config[SSL_CLIENT_AUTH] != "none"
    )
    return ListenerSecurity(
        listener=listener.name,
        protocol=listener.protocol,
        mapping=_mapping(config) if shows_certificate else None,
        sasl=_sasl(config, credentials, draw_nonce) if listener.protocol.has_sasl else None,
        login_frame_bytes=config[SASL_SERVER_MAX_RECEIVE_SIZE],
    )


def check_listeners(config: Values) -> None:
    """Check the values of the keys without reading files. Files are read when the broker starts.

    Raises:
        ConfigError: the configured listeners are invalid. The message names the key, the value, and
            what to do.
    """
    configured_listeners(config)
    _mapping(config)
    _mechanisms(config)


def takes_bearer_tokens(config: Values) -> bool:
    """Return whether clients may authenticate by OAUTHBEARER at any listener.

    Raises:
        ConfigError: as ``check_listeners``.
    """
    has_sasl = any(one.protocol.has_sasl for one in configured_listeners(config))
    return has_sasl and OAUTHBEARER in _mechanisms(config)


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
    if OAUTHBEARER in mechanisms and not config[SASL_OAUTHBEARER_JWKS_ENDPOINT_URL]:
        raise ConfigError(
            f"{key.name} has {OAUTHBEARER}, which needs {SASL_OAUTHBEARER_JWKS_ENDPOINT_URL.name}: "
            "set it to the URL of the keys that your identity provider signs tokens with"
        )
    return mechanisms


def _sasl(
    config: Values, credentials: CredentialProvider, draw_nonce: Callable[[], str]
) -> SaslOptions:
    return SaslOptions(
        mechanisms=_mechanisms(config),
        credentials=credentials,
        max_reauth_ms=config[CONNECTIONS_MAX_REAUTH_MS],
        draw_nonce=draw_nonce,
    )
