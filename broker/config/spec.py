"""All keys that a broker understands, and its configuration file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from broker.config import (
    compaction,
    controller,
    coordinator,
    fetching,
    listeners,
    log,
    node,
    producers,
    replication,
    retention,
    topics,
)
from broker.config.node import BROKER_ID, QUORUM_BOOTSTRAP_SERVERS
from broker.quota import config as quota_config
from broker.security import authorizer_config, grpc_config, token_config
from broker.security import config as security
from broker.security.door import check_listeners
from broker.security.grpc_config import check_grpc_security
from metadata_log.configuration import ConfigSpec, Configuration, declared, parse_endpoint
from quorum.config import LOG_LEVEL
from quorum.config_file import read_toml
from quorum.metrics.endpoint import METRICS_LISTENER, metrics_listener
from quorum.security import Role, Security
from quorum.security_config import BROKER_SECURITY, check_security, configured_security

BROKER_SPEC: Final = ConfigSpec(
    "broker",
    [
        *declared(node),
        *declared(listeners),
        *declared(fetching),
        *declared(replication),
        *declared(topics),
        *declared(controller),
        *declared(coordinator),
        *declared(log),
        *declared(retention),
        *declared(compaction),
        *declared(producers),
        *declared(token_config),
        *declared(security),
        *declared(quota_config),
        *declared(grpc_config),
        *declared(authorizer_config),
        *BROKER_SECURITY,
        METRICS_LISTENER,
        LOG_LEVEL,
    ],
)


def load_config(path: Path, overrides: Mapping[str, object]) -> Configuration:
    """The broker configuration in the TOML file at ``path``, with ``overrides`` on top.

    Raises:
        ConfigError: the file is missing or malformed, or a key or value is wrong.
    """
    config = BROKER_SPEC.parse({**read_toml(path), **overrides})
    key = QUORUM_BOOTSTRAP_SERVERS.name
    voters = [parse_endpoint(key, address) for address in quorum_addresses(config)]
    check_security(BROKER_SECURITY, config, key, voters)
    check_listeners(config)
    metrics_listener(config[METRICS_LISTENER])
    check_grpc_security(config)
    return config


def quorum_addresses(config: Configuration) -> list[str]:
    """gRPC addresses of voters, as configured."""
    return [address.strip() for address in config[QUORUM_BOOTSTRAP_SERVERS].split(",")]


def quorum_security(config: Configuration) -> Security | None:
    """This broker's certificates for the quorum, read and checked; None: plain text, on loopback.

    Raises:
        SecurityError: they cannot be used.
    """
    return configured_security(BROKER_SECURITY, config, Role.BROKER, config[BROKER_ID])
