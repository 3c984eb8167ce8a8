"""The keys of the HTTP listeners of a broker."""

import re
from typing import Final, NamedTuple

from quorate.common.configuration import (
    ConfigError,
    ConfigKey,
    Values,
    list_items,
    parse_endpoint,
)
from quorate.common.types import Endpoint

BASIC: Final = "BASIC"
BEARER: Final = "BEARER"
_URL: Final = re.compile(r"(?P<scheme>https?)://(?P<address>[^/]+)/?")

REGISTRY_LISTENER: Final = ConfigKey(
    name="registry.listener",
    type=str,
    default="",
    doc="http://host:port or https://host:port, where this broker serves the schema registry. Port "
    "0 means any free port. https has the certificate of ssl.keystore.location. If empty, this "
    "broker does not serve it.",
)
CONSOLE_LISTENER: Final = ConfigKey(
    name="console.listener",
    type=str,
    default="",
    doc="http://host:port or https://host:port, where this broker serves the console, a web page "
    "of the cluster. https has the certificate of ssl.keystore.location, and http.authentication "
    "says how people log in. Without it, everybody who reaches the address is ANONYMOUS. If empty, "
    "this broker serves no console.",
)
CONSOLE_ALLOWED_HOSTS: Final = ConfigKey(
    name="console.allowed.hosts",
    type=str,
    default="",
    is_list=True,
    doc="The host names under which browsers may open the console, beside localhost, addresses and "
    "the host of console.listener. Requests under other names are refused, because a name that "
    "others control may lead here.",
)
HTTP_AUTHENTICATION: Final = ConfigKey(
    name="http.authentication",
    type=str,
    default="",
    is_list=True,
    doc="How clients of the HTTP listeners authenticate: BASIC, by user and password of a user "
    "with SCRAM credentials; BEARER, by a token as of OAUTHBEARER; or both, with a comma. "
    "Somebody who listens could use either, so give them over https. If empty, a client is who "
    "its certificate says (https with ssl.client.auth), or ANONYMOUS.",
)
HTTP_MAX_CONNECTIONS: Final = ConfigKey(
    name="http.max.connections",
    type=int,
    default=1_000,
    at_least=1,
    at_most=100_000,
    doc="The most connections of one HTTP listener. Further ones are closed at once. "
    "max.connections.per.ip holds for each HTTP listener, too.",
)

HTTP_LISTENERS: Final = (REGISTRY_LISTENER, CONSOLE_LISTENER)


class HttpAddress(NamedTuple):
    """Where an HTTP listener listens, and whether with TLS."""

    endpoint: Endpoint
    has_tls: bool

    @property
    def scheme(self) -> str:
        return "https" if self.has_tls else "http"

    def url(self, bound: Endpoint) -> str:
        """Return the URL of the address that is ``bound``."""
        return f"{self.scheme}://{bound}"


def http_address(key: ConfigKey[str], config: Values) -> HttpAddress | None:
    """Return where the listener with that key listens, or None if it is not configured.

    Raises:
        ConfigError: not http://host:port or https://host:port.
    """
    value = config[key]
    if not value:
        return None
    found = _URL.fullmatch(value)
    if found is None:
        raise ConfigError(f"{key.name}={value}: must be http://host:port or https://host:port")
    return HttpAddress(parse_endpoint(key.name, found["address"]), found["scheme"] == "https")


def http_authentication(config: Values) -> frozenset[str]:
    """Return how clients authenticate: some of BASIC and BEARER.

    Raises:
        ConfigError: the key has something else.
    """
    key = HTTP_AUTHENTICATION
    methods = frozenset(item.upper() for item in list_items(config[key]))
    if methods - {BASIC, BEARER}:
        raise ConfigError(
            f"{key.name}={config[key]}: must be some of {BASIC} and {BEARER}, commas between"
        )
    return methods
