"""Topic keys of Kafka's that are accepted although they have no effect."""

import pytest

from quorate.broker.config.topic_keys import TOPIC_SPEC
from quorate.common.configuration import ConfigError

KAFKAS_DEFAULTS = {
    "flush.messages": 2**63 - 1,
    "flush.ms": 2**63 - 1,
    "compression.gzip.level": -1,
    "compression.lz4.level": 9,
    "compression.zstd.level": 3,
    "remote.storage.enable": False,
    "remote.log.copy.disable": False,
    "remote.log.delete.on.disable": False,
    "local.retention.ms": -2,
    "local.retention.bytes": -2,
}


@pytest.mark.parametrize(("name", "default"), KAFKAS_DEFAULTS.items())
def test_kafkas_default_is_ours_and_is_accepted_as_text(name: str, default: object) -> None:
    key = TOPIC_SPEC.key(name)
    assert key.default == default
    assert key.parse(str(default).lower()) == default
    assert "here: " in key.doc


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compression.gzip.level", "9"),
        ("compression.zstd.level", "-5"),
        ("local.retention.ms", "7"),
    ],
)
def test_what_kafka_accepts_is_accepted(name: str, value: str) -> None:
    assert TOPIC_SPEC.key(name).parse(value) == int(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("remote.storage.enable", "true"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("flush.messages", "0"),
        ("flush.ms", "-1"),
        ("local.retention.ms", "-3"),
    ],
)
def test_what_kafka_refuses_or_would_be_missed_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        TOPIC_SPEC.key(name).parse(value)
