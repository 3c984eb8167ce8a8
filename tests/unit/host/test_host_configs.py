"""Brokers of one host fit together, or none of them starts."""

from pathlib import Path

import pytest

from quorate.broker.config.node import BROKER_ID
from quorate.broker.host.host_configs import load_configs
from quorate.broker.host.restart_delays import (
    FIRST_DELAY_MS,
    LONGEST_DELAY_MS,
    RAN_LONG_MS,
    RestartDelays,
)
from quorate.common.configuration import ConfigError


def written(folder: Path, name: str, broker_id: int, rack: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(
        f"""
        "broker.id" = {broker_id}
        "broker.rack" = "{rack}"
        "log.dir" = "{folder / name}"
        "listeners" = "PLAINTEXT://127.0.0.1:9092"
        "grpc.listener" = "127.0.0.1:9192"
        "quorum.bootstrap.servers" = "127.0.0.1:7101"
        "quorum.security.protocol" = "PLAINTEXT"
        """
    )
    return path


def test_brokers_of_one_rack_fit_together(tmp_path: Path) -> None:
    paths = [written(tmp_path, "a", 11, "host-1"), written(tmp_path, "b", 12, "host-1")]
    configs = load_configs(paths, {"log.level": "DEBUG"})
    assert [config[BROKER_ID] for config in configs.values()] == [11, 12]
    assert list(configs) == paths


def test_one_broker_needs_no_rack(tmp_path: Path) -> None:
    assert load_configs([written(tmp_path, "a", 11, "")], {})


@pytest.mark.parametrize("racks", [("", ""), ("host-1", "host-2"), ("host-1", "")])
def test_brokers_that_could_hold_the_same_partition_are_refused(
    racks: tuple[str, str], tmp_path: Path
) -> None:
    paths = [
        written(tmp_path, name, ord(name), rack) for name, rack in zip("ab", racks, strict=True)
    ]
    with pytest.raises(ConfigError, match=r"need the same broker\.rack.*b\.toml has '"):
        load_configs(paths, {})


def test_equal_ids_are_refused_with_their_files(tmp_path: Path) -> None:
    paths = [written(tmp_path, name, 11, "host-1") for name in "ab"]
    with pytest.raises(ConfigError, match=r"broker\.id=11 is in .*a\.toml, .*b\.toml"):
        load_configs(paths, {})


def test_a_broker_that_goes_on_failing_starts_again_later_each_time() -> None:
    delays = RestartDelays()
    waited = [delays.after_failure(ran_ms=100) for _ in range(8)]
    assert waited[:3] == [FIRST_DELAY_MS, 2 * FIRST_DELAY_MS, 4 * FIRST_DELAY_MS]
    assert waited[-1] == LONGEST_DELAY_MS


def test_a_broker_that_ran_long_starts_again_soon() -> None:
    delays = RestartDelays()
    for _ in range(8):
        delays.after_failure(ran_ms=100)
    assert delays.after_failure(ran_ms=RAN_LONG_MS) == FIRST_DELAY_MS
