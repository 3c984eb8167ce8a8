"""With what a client reaches the brokers of a local cluster: from its folder.

Loads no server code: commands that only ask something use it.
"""

from pathlib import Path
from typing import Final

from metadata_log.configuration import ConfigError
from quorum.config_file import read_toml

_PROTOCOL: Final = "grpc.security.protocol"
_SSL: Final = "SSL"
_SASL_SSL: Final = "SASL_SSL"
"""As ``broker.security.grpc_config`` declares them, which loads all there is about certificates."""

_OWN_KEYSTORE: Final = "grpc.ssl.keystore.location"


def client_options_of(folder: Path) -> dict[str, str]:
    """Options of ``quorate.client.security`` for the cluster in ``folder``; empty: plain text.

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
