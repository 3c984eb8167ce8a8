"""Checks of the configuration of the HTTP listeners, without reading files."""

from quorate.broker.config.http_listeners import (
    BEARER,
    HTTP_AUTHENTICATION,
    HTTP_LISTENERS,
    http_address,
    http_authentication,
)
from quorate.broker.config.oauth import SASL_OAUTHBEARER_JWKS_ENDPOINT_URL
from quorate.common.configuration import ConfigError, Values
from quorate.common.types import Endpoint


def takes_bearer_tokens_over_http(config: Values) -> bool:
    """Return whether clients may authenticate with tokens at any HTTP listener."""
    is_open = any(http_address(key, config) is not None for key in HTTP_LISTENERS)
    return is_open and BEARER in http_authentication(config)


def check_http_listeners(config: Values) -> None:
    """Check the values of the keys without reading files.

    Raises:
        ConfigError: a value is malformed. The message names the key, the value, and what to do.
    """
    taken: dict[Endpoint, str] = {}
    for key in HTTP_LISTENERS:
        address = http_address(key, config)
        if address is None:
            continue
        other = taken.setdefault(address.endpoint, key.name)
        if address.endpoint.port and other != key.name:
            raise ConfigError(
                f"{key.name} and {other} name {address.endpoint}: each needs a port of its own"
            )
    if BEARER in http_authentication(config) and not config[SASL_OAUTHBEARER_JWKS_ENDPOINT_URL]:
        raise ConfigError(
            f"{HTTP_AUTHENTICATION.name} has {BEARER}, which needs "
            f"{SASL_OAUTHBEARER_JWKS_ENDPOINT_URL.name}: set it to the URL of the keys that your "
            "identity provider signs tokens with"
        )
