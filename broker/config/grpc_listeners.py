"""The keys of the gRPC listeners of a broker and of their security.

Between each other, brokers always use the certificates that they have for the quorum. So only a
process that the quorum accepts as a broker is accepted as a broker here.
"""

from collections.abc import Mapping
from typing import Final

from quorate.common.configuration import ConfigError, ConfigKey, Configuration, parse_endpoint
from quorate.common.tls.tls_config import BROKER_SECURITY, PLAINTEXT, SSL, require_loopback
from quorate.common.types import Endpoint

SASL_SSL: Final = "SASL_SSL"
REQUIRED: Final = "required"
NONE: Final = "none"

GRPC_LISTENER: Final = ConfigKey(
    name="grpc.listener",
    type=str,
    default="127.0.0.1:0",
    doc="The address where Spark and the quorate client connect. Port 0 means any free port.",
)
ADVERTISED_GRPC_LISTENER: Final = ConfigKey(
    name="advertised.grpc.listener",
    type=str,
    default="",
    doc="The address, as host:port, that Spark and the quorate client are told to connect to. If "
    "empty, they are told that of grpc.listener.",
)
INTER_BROKER_LISTENER: Final = ConfigKey(
    name="inter.broker.listener",
    type=str,
    default="",
    doc="The address where other brokers and the controller connect, under mutual TLS. If empty, "
    "it is any free port at the host of grpc.listener.",
)
REPLICATION_PORT: Final = ConfigKey(
    name="replication.port",
    type=int,
    default=0,
    at_least=-1,
    at_most=65_535,
    doc="The port, at the host of inter.broker.listener and under the same TLS, where followers "
    "fetch. 0 means any free port. With -1, or where followers cannot reach the port, they fetch "
    "over inter.broker.listener, which costs all brokers more.",
)
GRPC_SECURITY_PROTOCOL: Final = ConfigKey(
    name="grpc.security.protocol",
    type=str,
    default=PLAINTEXT,
    one_of=(PLAINTEXT, SSL, SASL_SSL),
    doc="The security protocol of grpc.listener. SSL: TLS, with identity by certificate. "
    "SASL_SSL: TLS, with identity by user and password. PLAINTEXT: neither TLS nor identity.",
)
GRPC_KEYSTORE: Final = ConfigKey(
    name="grpc.ssl.keystore.location",
    type=str,
    default="",
    doc="A PEM file with the private key and the certificate chain of grpc.listener. If empty, "
    "quorum.ssl.keystore.location applies.",
)
GRPC_TRUSTSTORE: Final = ConfigKey(
    name="grpc.ssl.truststore.location",
    type=str,
    default="",
    doc="A PEM file with the authority of the certificates of clients. If empty, "
    "quorum.ssl.truststore.location applies.",
)
GRPC_CLIENT_AUTH: Final = ConfigKey(
    name="grpc.ssl.client.auth",
    type=str,
    default=NONE,
    one_of=(NONE, REQUIRED),
    doc="Whether clients of grpc.listener must have a certificate (SSL, SASL_SSL).",
)


def grpc_endpoint(config: Configuration) -> Endpoint:
    """Return the address at which the broker serves clients."""
    return parse_endpoint(GRPC_LISTENER.name, config[GRPC_LISTENER])


def advertised_grpc_endpoint(config: Configuration, bound: Endpoint) -> Endpoint:
    """Return the address that clients are told to connect to; ``bound`` if none is configured."""
    advertised = config[ADVERTISED_GRPC_LISTENER]
    return parse_endpoint(ADVERTISED_GRPC_LISTENER.name, advertised) if advertised else bound


def inter_broker_endpoint(config: Configuration) -> Endpoint:
    """Return the address at which the broker serves other brokers."""
    wanted = config[INTER_BROKER_LISTENER]
    if wanted:
        return parse_endpoint(INTER_BROKER_LISTENER.name, wanted)
    return Endpoint(grpc_endpoint(config).host, 0)


def check_grpc_security(config: Configuration) -> None:
    """Check everything that can be checked without reading files.

    Raises:
        ConfigError: an address is malformed, plain text between brokers would leave the machine,
            or TLS is set without files.
    """
    advertised_grpc_endpoint(config, grpc_endpoint(config))
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
