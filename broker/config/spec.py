"""All configuration keys of a broker."""

from typing import Final

from quorate.broker.config import authorizer as authorizer_config
from quorate.broker.config import (
    client_keys,
    compaction,
    consumer_groups,
    controller,
    coordinator,
    http_listeners,
    listeners,
    log,
    node,
    oauth,
    producers,
    registry,
    replication,
    retention,
    security,
    share_groups,
    telemetry,
    topics,
)
from quorate.broker.config import grpc_listeners as grpc_config
from quorate.broker.config import tokens as token_config
from quorate.broker.config.node import BROKER_ID, QUORUM_BOOTSTRAP_SERVERS
from quorate.common.configuration import LOG_LEVEL, ConfigSpec, Configuration, declared
from quorate.common.metrics.metrics_endpoint import METRICS_LISTENER
from quorate.common.tls.identity import Role, Security
from quorate.common.tls.tls_config import BROKER_SECURITY, configured_security

BROKER_SPEC: Final = ConfigSpec(
    "broker",
    [
        *declared(node),
        *declared(listeners),
        *declared(http_listeners),
        *declared(registry),
        *declared(client_keys),
        *declared(replication),
        *declared(topics),
        *declared(controller),
        *declared(coordinator),
        *declared(consumer_groups),
        *declared(share_groups),
        *declared(log),
        *declared(retention),
        *declared(compaction),
        *declared(producers),
        *declared(token_config),
        *declared(security),
        *declared(oauth),
        *declared(telemetry),
        *declared(grpc_config),
        *declared(authorizer_config),
        *BROKER_SECURITY,
        METRICS_LISTENER,
        LOG_LEVEL,
    ],
)


def quorum_addresses(config: Configuration) -> list[str]:
    """Return the gRPC addresses of the voters."""
    return [address.strip() for address in config[QUORUM_BOOTSTRAP_SERVERS].split(",")]


def quorum_security(config: Configuration) -> Security | None:
    """Read and check this broker's certificates for the quorum. Return None for plain text, which
    is only for loopback addresses.

    Raises:
        SecurityError: the certificates cannot be used.
    """
    return configured_security(BROKER_SECURITY, config, Role.BROKER, config[BROKER_ID])
