"""The options with which a client reaches the brokers of a local cluster, read from its folder.

The module loads no server code, because commands that only ask something use it.
"""

from pathlib import Path
from typing import Final

from quorate.common.configuration import ConfigError, read_toml

_PROTOCOL: Final = "grpc.security.protocol"
_SSL: Final = "SSL"
_SASL_SSL: Final = "SASL_SSL"
"""The same value as in ``grpc_listeners``, which would load all code about certificates."""

_OWN_KEYSTORE: Final = "grpc.ssl.keystore.location"


def client_options_of(folder: Path) -> dict[str, str]:
    """Return the options of `quorate.client.security` for the cluster in ``folder``.

    They are empty if the cluster speaks plain text.

    Raises:
        ConfigError: a configuration file is malformed, or only a password lets a client in.
    """
    for path in sorted((folder / "config").glob("broker-*.toml")):
        values = read_toml(path)
        protocol = values.get(_PROTOCOL)
        if protocol == _SASL_SSL:
            raise ConfigError(
                f"{path}: {_PROTOCOL}={_SASL_SSL} asks for user and password: give them with "
                "--command-config, together with --bootstrap-server"
            )
        if protocol == _SSL and not values.get(_OWN_KEYSTORE):
            return _with_own_certificates(folder / "certs")
    return {}


def _with_own_certificates(certs: Path) -> dict[str, str]:
    return {
        f"grpc.{name}": value
        for name, value in {
            "security.protocol": _SSL,
            "ssl.ca.location": str(certs / "truststore.pem"),
            "ssl.certificate.location": str(certs / "admin.pem"),
            "ssl.endpoint.identification.algorithm": "none",
        }.items()
    }
