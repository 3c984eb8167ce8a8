"""Where a broker serves gRPC, and with what protection.

Brokers among themselves always use the certificates they have for the quorum: whoever may be a
broker at the quorum may be one here, and nobody else.
"""

from collections.abc import Mapping
from typing import Final

from metadata_log.configuration import ConfigError, ConfigKey, Configuration, parse_endpoint
from metadata_log.types import Endpoint
from quorum.security_config import BROKER_SECURITY, PLAINTEXT, SSL, require_loopback

SASL_SSL: Final = "SASL_SSL"
REQUIRED: Final = "required"
NONE: Final = "none"

GRPC_LISTENER: Final = ConfigKey(
    name="grpc.listener",
    type=str,
    default="127.0.0.1:0",
    doc="Where Spark and the quorate client connect; port 0: any free one.",
)
INTER_BROKER_LISTENER: Final = ConfigKey(
    name="inter.broker.listener",
    type=str,
    default="",
    doc="Where other brokers and the controller connect, under mutual TLS; "
    "empty: any free port at the host of grpc.listener.",
)
GRPC_SECURITY_PROTOCOL: Final = ConfigKey(
    name="grpc.security.protocol",
    type=str,
    default=PLAINTEXT,
    one_of=(PLAINTEXT, SSL, SASL_SSL),
    doc="Of grpc.listener. SSL: TLS, identity by certificate; SASL_SSL: TLS, identity by user and "
    "password; PLAINTEXT: neither.",
)
GRPC_KEYSTORE: Final = ConfigKey(
    name="grpc.ssl.keystore.location",
    type=str,
    default="",
    doc="PEM file: private key and certificate chain of grpc.listener; "
    "empty: those of quorum.ssl.keystore.location.",
)
GRPC_TRUSTSTORE: Final = ConfigKey(
    name="grpc.ssl.truststore.location",
    type=str,
    default="",
    doc="PEM file: authority of the certificates of clients; "
    "empty: that of quorum.ssl.truststore.location.",
)
GRPC_CLIENT_AUTH: Final = ConfigKey(
    name="grpc.ssl.client.auth",
    type=str,
    default=NONE,
    one_of=(NONE, REQUIRED),
    doc="Whether clients of grpc.listener must have a certificate (SSL, SASL_SSL).",
)


def grpc_endpoint(config: Configuration) -> Endpoint:
    """Where clients are to be served."""
    return parse_endpoint(GRPC_LISTENER.name, config[GRPC_LISTENER])


def inter_broker_endpoint(config: Configuration) -> Endpoint:
    """Where brokers are to be served."""
    wanted = config[INTER_BROKER_LISTENER]
    if wanted:
        return parse_endpoint(INTER_BROKER_LISTENER.name, wanted)
    return Endpoint(grpc_endpoint(config).host, 0)


def check_grpc_security(config: Configuration) -> None:
    """What the values alone can tell.

    Raises:
        ConfigError: plain text between brokers that would leave the machine, or TLS without files.
    """
    if config[BROKER_SECURITY.protocol] == PLAINTEXT:
        named = INTER_BROKER_LISTENER if config[INTER_BROKER_LISTENER] else GRPC_LISTENER
        require_loopback(BROKER_SECURITY, named.name, [inter_broker_endpoint(config)])
        if config[GRPC_SECURITY_PROTOCOL] != PLAINTEXT:
            _require_files(config)


def _require_files(config: Configuration) -> None:
    needed: Mapping[ConfigKey[str], bool] = {
        GRPC_KEYSTORE: True,
        GRPC_TRUSTSTORE: config[GRPC_CLIENT_AUTH] == REQUIRED,
    }
    for key, is_needed in needed.items():
        if is_needed and not config[key]:
            raise ConfigError(
                f"{key.name} is missing, and {GRPC_SECURITY_PROTOCOL.name}="
                f"{config[GRPC_SECURITY_PROTOCOL]} needs it where the quorum is spoken to in plain "
                f"text: make certificates with `quorate certs`, or set "
                f"{GRPC_SECURITY_PROTOCOL.name}={PLAINTEXT}"
            )
