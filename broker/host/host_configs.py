"""Checks that the brokers of one host fit together: different ids, and one rack."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from quorate.broker.config.node import BROKER_ID, BROKER_RACK
from quorate.broker.security.config_file import load_config
from quorate.common.configuration import ConfigError, Configuration


def load_configs(
    paths: Sequence[Path], overrides: Mapping[str, object]
) -> Mapping[Path, Configuration]:
    """Return the configurations of all brokers of a host, by file.

    Raises:
        ConfigError: a file is wrong, or the brokers do not fit together.
    """
    configs = {path: load_config(path, overrides) for path in paths}
    _refuse_equal_ids(configs)
    _refuse_different_racks(configs)
    return configs


def _refuse_equal_ids(configs: Mapping[Path, Configuration]) -> None:
    ids = Counter(config[BROKER_ID] for config in configs.values())
    broker_id, count = ids.most_common(1)[0]
    if count > 1:
        named = ", ".join(str(path) for path, one in configs.items() if one[BROKER_ID] == broker_id)
        raise ConfigError(f"{BROKER_ID.name}={broker_id} is in {named}: give each its own")


def _refuse_different_racks(configs: Mapping[Path, Configuration]) -> None:
    """Brokers of one host fail together. In different racks, or in none, they could hold all
    replicas of a partition."""
    racks = {config[BROKER_RACK] for config in configs.values()}
    if len(configs) > 1 and (len(racks) > 1 or "" in racks):
        named = ", ".join(f"{path} has {one[BROKER_RACK]!r}" for path, one in configs.items())
        raise ConfigError(
            f"brokers of one host need the same {BROKER_RACK.name}, such as the host's name, "
            f"because they fail together: {named}"
        )
