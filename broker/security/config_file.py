"""Reading of a broker's configuration file, with checks that its keys fit together."""

from collections.abc import Mapping
from pathlib import Path

from quorate.broker.config.grpc_listeners import check_grpc_security
from quorate.broker.config.log import log_folders
from quorate.broker.config.node import QUORUM_BOOTSTRAP_SERVERS
from quorate.broker.config.spec import BROKER_SPEC, quorum_addresses
from quorate.broker.security.http_security import check_http_listeners
from quorate.broker.security.listener_security import check_listeners
from quorate.common.configuration import Configuration, parse_endpoint, read_toml
from quorate.common.metrics.metrics_endpoint import METRICS_LISTENER, metrics_listener
from quorate.common.tls.tls_config import BROKER_SECURITY, check_security


def load_config(path: Path, overrides: Mapping[str, object]) -> Configuration:
    """Return the broker configuration in the TOML file at ``path``. ``overrides`` replace values of
    the file.

    Raises:
        ConfigError: the file is missing or malformed, or a key or value is wrong.
    """
    config = BROKER_SPEC.parse({**read_toml(path), **overrides})
    key = QUORUM_BOOTSTRAP_SERVERS.name
    voters = [parse_endpoint(key, address) for address in quorum_addresses(config)]
    check_security(BROKER_SECURITY, config, key, voters)
    log_folders(config)
    check_listeners(config)
    check_http_listeners(config)
    metrics_listener(config[METRICS_LISTENER])
    check_grpc_security(config)
    return config
