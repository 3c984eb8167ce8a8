"""The listeners of one broker, as its configuration describes them."""

import enum
from collections import Counter
from typing import NamedTuple

from broker.config.listeners import ADVERTISED_LISTENERS, LISTENERS
from broker.security.config import LISTENER_SECURITY_PROTOCOL_MAP
from metadata_log.configuration import ConfigError, Values, parse_endpoint
from metadata_log.types import DEFAULT_LISTENER, Endpoint


class SecurityProtocol(enum.Enum):
    """Kafka's four."""

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
    """One listener. ``advertised`` None: clients are told where it listens."""

    name: str
    protocol: SecurityProtocol
    endpoint: Endpoint
    advertised: Endpoint | None = None


def configured_listeners(config: Values) -> list[ListenerConfig]:
    """All of them, in the order of ``listeners``; the first is where a broker is found by default.

    Raises:
        ConfigError: malformed, a name or address twice, or a name that nothing else knows.
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
    """NAME://host:port,…; without a name it is PLAINTEXT."""
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
