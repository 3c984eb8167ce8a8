"""Settings from ``--set key=value``: checked before anything starts, then given to the processes
that know them."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from quorate.broker.config.spec import BROKER_SPEC
from quorate.common.configuration import ConfigError, ConfigSpec
from quorate.common.tls.tls_config import BROKER_SECURITY, VOTER_SECURITY
from quorate.quorum.quorum_config import QUORUM_SPEC

MANAGED: Final[Mapping[str, str]] = {
    "advertised.listeners": "--port",
    "broker.id": "--brokers",
    "cluster.id": "another --data folder",
    "data.dir": "--data",
    "grpc.listener": "--port",
    "listeners": "--port, and --set listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT "
    "for a login",
    "log.dir": "--data",
    "node.id": "--quorum",
    "quorum.bootstrap.servers": "--quorum",
    "quorum.security.protocol": "--set security.protocol=…, for voters and brokers",
    "quorum.ssl.keystore.location": "DIR/certs",
    "quorum.ssl.truststore.location": "DIR/certs",
    "quorum.voters": "--quorum",
    "ssl.keystore.location": "DIR/certs",
    "ssl.truststore.location": "DIR/certs",
}
"""Keys that a local cluster sets by itself → how the user can influence them."""


_BROKERS_NAME: Final = {VOTER_SECURITY.protocol.name: BROKER_SECURITY.protocol.name}
"""Keys that have different names for voters and brokers, and must have the same value."""


@dataclass(frozen=True)
class Settings:
    """Typed values for each type of process."""

    quorum: Mapping[str, object] = field(default_factory=dict)
    broker: Mapping[str, object] = field(default_factory=dict)


def split_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """Split ``key=value`` strings, without a look at the keys.

    Raises:
        ConfigError: a string is not of that form.
    """
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {pair}: must be key=value")
        values[key.strip()] = value.strip()
    return values


def check_settings(values: Mapping[str, object]) -> Settings:
    """Split the settings by the processes that know the key, and type them.

    Raises:
        ConfigError: a key is unknown (names the nearest known key) or managed by the local cluster
            itself, or a value is wrong.
    """
    for key in values:
        _refuse_unknown(key)
        if key in MANAGED:
            raise ConfigError(f"{key} is set by the local cluster itself: use {MANAGED[key]}")
    for_brokers = {_BROKERS_NAME.get(key, key): value for key, value in values.items()}
    return Settings(quorum=_known(QUORUM_SPEC, values), broker=_known(BROKER_SPEC, for_brokers))


def _known(spec: ConfigSpec, values: Mapping[str, object]) -> dict[str, object]:
    return {key: spec.key(key).parse(value) for key, value in values.items() if key in spec}


def _refuse_unknown(key: str) -> None:
    if key in QUORUM_SPEC or key in BROKER_SPEC:
        return
    names = sorted({known.name for spec in (QUORUM_SPEC, BROKER_SPEC) for known in spec})
    near = difflib.get_close_matches(key, names, n=1)
    hint = f": did you mean {near[0]}?" if near else f"; known are {', '.join(names)}"
    raise ConfigError(f"unknown configuration key {key!r}{hint}")
