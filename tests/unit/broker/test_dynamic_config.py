"""Which of several places decides a value, and that a change is seen at once."""

import logging

import msgspec
import pytest

from quorate.broker.config.dynamic_config import ConfigSource, LiveConfiguration, topic_settings
from quorate.broker.config.group_keys import CONSUMER_SESSION_TIMEOUT
from quorate.broker.config.listeners import FETCH_MAX_BYTES
from quorate.broker.config.replication import FOLLOWER_REPLICATION_THROTTLED_RATE
from quorate.broker.config.spec import BROKER_SPEC
from quorate.broker.config.topic_keys import (
    TOPIC_LEADER_THROTTLED_REPLICAS,
    TOPIC_MAX_MESSAGE_BYTES,
    TOPIC_MIN_INSYNC_REPLICAS,
    TOPIC_RETENTION_MS,
    TOPIC_SPEC,
)
from quorate.broker.config.topics import MIN_INSYNC_REPLICAS
from quorate.broker.log import KEEP_ALL, Retention
from quorate.broker.log.batches.topic_timestamps import TopicStorageOptions
from quorate.broker.log.compaction.log_selection import CompactionOptions
from quorate.broker.replication.hosting.partition_limits import PartitionLimits
from quorate.common.configuration import ConfigError
from quorate.common.types import BrokerId
from quorate.metadata_log.records import ConfigSet
from tests.support.followers import ShownImage
from tests.support.metadata import MetadataLogBuilder

REQUIRED = {"broker.id": 1, "log.dir": "x", "quorum.bootstrap.servers": "x:1"}
ME = BrokerId(1)


class Cluster:
    """Broker 1 and what is configured."""

    def __init__(self, **file: object) -> None:
        self.log = MetadataLogBuilder()
        self.log.start_broker(1)
        self.log.elect_controller(1)
        named = {key.replace("_", "."): value for key, value in file.items()}
        self.file = BROKER_SPEC.parse({**REQUIRED, **named})
        self.live = LiveConfiguration(ShownImage(lambda: self.log.image), self.file, ME)

    def set(self, entity_type: str, name: str, key: str, value: object) -> None:
        text = None if value is None else str(value)
        record = ConfigSet(entity_type=entity_type, entity_name=name, key=key, value=text)
        assert self.log.write_as_controller(record).ok


def test_c11_a_brokers_own_value_goes_before_the_one_for_all_and_its_file() -> None:
    cluster = Cluster(follower_replication_throttled_rate=7)
    name = FOLLOWER_REPLICATION_THROTTLED_RATE.name
    seen = [cluster.live[FOLLOWER_REPLICATION_THROTTLED_RATE]]
    for entity, value in (("", 8), ("2", 10), ("1", 9), ("1", None), ("", None)):
        cluster.set("broker", entity, name, value)
        seen.append(cluster.live[FOLLOWER_REPLICATION_THROTTLED_RATE])
    assert seen == [7, 8, 8, 9, 8, 7]


def test_f3_a_topics_value_goes_before_all_that_its_broker_has() -> None:
    cluster = Cluster(min_insync_replicas=2)
    name = MIN_INSYNC_REPLICAS.name
    assert PartitionLimits(cluster.live).min_insync_replicas("t") == 2
    cluster.set("broker", "", name, 3)
    assert PartitionLimits(cluster.live).min_insync_replicas("t") == 3
    cluster.set("broker", "1", name, 4)
    assert PartitionLimits(cluster.live).min_insync_replicas("t") == 4
    cluster.set("topic", "t", name, 5)
    assert PartitionLimits(cluster.live).min_insync_replicas("t") == 5
    assert PartitionLimits(cluster.live).min_insync_replicas("u") == 4


def test_a_groups_value_goes_before_that_of_its_broker_within_its_limits() -> None:
    cluster = Cluster(group_consumer_session_timeout_ms=50_000)
    key = CONSUMER_SESSION_TIMEOUT
    assert cluster.live.of_group("g", key) == 50_000
    cluster.set("group", "g", key.key.name, 55_000)
    assert (cluster.live.of_group("g", key), cluster.live.of_group("h", key)) == (55_000, 50_000)
    cluster.set("group", "g", key.key.name, 99_000)
    assert cluster.live.of_group("g", key) == 60_000, "another broker has let it pass"
    cluster.set("group", "g", key.key.name, None)
    assert cluster.live.of_group("g", key) == 50_000


def test_f3_every_place_that_gives_a_value_is_named_in_order() -> None:
    cluster = Cluster(message_max_bytes=20)
    cluster.set("topic", "t", "max.message.bytes", 50)
    cluster.set("broker", "1", "message.max.bytes", 40)
    cluster.set("broker", "", "message.max.bytes", 30)
    found = topic_settings(cluster.log.image, cluster.file, ME, "t", TOPIC_MAX_MESSAGE_BYTES)
    assert [(one.name, one.value, one.source) for one in found] == [
        ("max.message.bytes", 50, ConfigSource.TOPIC),
        ("message.max.bytes", 40, ConfigSource.BROKER),
        ("message.max.bytes", 30, ConfigSource.EVERY_BROKER),
        ("message.max.bytes", 20, ConfigSource.FILE),
        ("message.max.bytes", 8 << 20, ConfigSource.DEFAULT),
    ]
    own = topic_settings(cluster.log.image, cluster.file, ME, "t", TOPIC_LEADER_THROTTLED_REPLICAS)
    assert [(one.value, one.source) for one in own] == [("", ConfigSource.DEFAULT)]


def test_f3_what_only_a_restart_changes_is_taken_from_the_file() -> None:
    cluster = Cluster(log_dir="here")
    cluster.set("broker", "1", "log.dir", "there")
    assert cluster.live[BROKER_SPEC.key("log.dir")] == "here"


def test_f3_a_stored_value_that_makes_no_sense_is_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster(fetch_max_bytes=5_000)
    cluster.set("broker", "1", FETCH_MAX_BYTES.name, "much")
    with caplog.at_level(logging.WARNING):
        assert cluster.live[FETCH_MAX_BYTES] == 5_000
    assert "fetch.max.bytes=much: must be a whole number" in caplog.text


def test_f3_values_are_looked_up_once_per_change() -> None:
    cluster = Cluster()
    asked: list[int] = []

    class Counted(dict[object, object]):
        def get(self, key: object, default: object = None) -> object:
            asked.append(1)
            return default

    image = msgspec.structs.replace(cluster.log.image, configs=Counted())
    live = LiveConfiguration(ShownImage(lambda: image), cluster.file, ME)
    for _ in range(3):
        assert live.of_topic("t", TOPIC_MIN_INSYNC_REPLICAS) == 1
    assert len(asked) == 3, "topic, broker, all brokers: once each"


HOURS, MINUTES, MS = (f"log.retention.{unit}" for unit in ("hours", "minutes", "ms"))


@pytest.mark.parametrize(
    ("given", "kept_ms", "name"),
    [
        ({}, 604_800_000, HOURS),
        ({HOURS: 2}, 7_200_000, HOURS),
        ({HOURS: 2, MINUTES: 3}, 180_000, MINUTES),
        ({HOURS: 2, MINUTES: 3, MS: 4}, 4, MS),
        ({HOURS: -1}, -1, HOURS),
    ],
)
def test_f3_retention_in_finer_units_goes_before_that_in_coarser_ones(
    given: dict[str, int], kept_ms: int, name: str
) -> None:
    cluster = Cluster(**{key.replace(".", "_"): value for key, value in given.items()})
    assert PartitionLimits(cluster.live).retention("t") == Retention(ms=kept_ms, bytes=-1)
    first = next(topic_settings(cluster.log.image, cluster.file, ME, "t", TOPIC_RETENTION_MS))
    assert first.name == name
    cluster.set("broker", "", MS, 5)
    assert PartitionLimits(cluster.live).retention("t").ms == 5
    cluster.set("topic", "t", "retention.ms", -1)
    cluster.set("topic", "t", "retention.bytes", 6)
    assert PartitionLimits(cluster.live).retention("t") == Retention(ms=-1, bytes=6)
    assert PartitionLimits(cluster.live).retention("u").ms == 5


def test_f3_how_records_are_stored_is_the_topics_or_the_brokers() -> None:
    cluster = Cluster()
    limits = PartitionLimits(cluster.live)
    assert limits.storing("t") == TopicStorageOptions(after_max_ms=3_600_000)
    for key, value in (
        ("message.timestamp.type", "LogAppendTime"),
        ("message.timestamp.before.max.ms", 7),
        ("message.timestamp.after.max.ms", 8),
        ("compression.type", "lz4"),
    ):
        cluster.set("topic", "t", key, value)
    cluster.set("broker", "", "log.message.timestamp.after.max.ms", 9)
    assert limits.storing("t") == TopicStorageOptions(
        log_append_time=True, before_max_ms=7, after_max_ms=8, codec=3
    )
    cluster.set("broker", "", "compression.type", "uncompressed")
    assert limits.storing("u") == TopicStorageOptions(after_max_ms=9, codec=0)


def test_silence_counts_as_configured_and_bounds_how_long_fetches_wait() -> None:
    cluster = Cluster()
    limits = PartitionLimits(cluster.live)
    assert (limits.silence_max_ms(), limits.fetch_wait_ms(500)) == (5_000, 500)
    assert limits.fetch_wait_ms(60_000) == 1_666
    cluster.set("broker", "", "replica.silence.max.ms", 900)
    assert (limits.silence_max_ms(), limits.fetch_wait_ms(500)) == (900, 300)


@pytest.mark.parametrize("key", ["retention.ms", "retention.bytes"])
def test_f3_retention_is_minus_one_or_more(key: str) -> None:
    TOPIC_SPEC.parse({key: "-1"})
    with pytest.raises(ConfigError, match=f"{key}=-2: must be at least -1"):
        TOPIC_SPEC.parse({key: "-2"})


@pytest.mark.parametrize(
    ("key", "accepted", "refused"),
    [
        ("segment.bytes", "1048576", "0"),
        ("segment.ms", "100", "0"),
        ("segment.jitter.ms", "0", "-1"),
        ("segment.index.bytes", "51200", "3"),
        ("index.interval.bytes", "0", "-1"),
        ("file.delete.delay.ms", "0", "soon"),
        ("preallocate", "true", "maybe"),
    ],
)
def test_f3_what_kafka_asks_of_its_files_is_taken_in_its_ranges(
    key: str, accepted: str, refused: str
) -> None:
    TOPIC_SPEC.parse({key: accepted})
    with pytest.raises(ConfigError, match=f"{key}={refused}: must be"):
        TOPIC_SPEC.parse({key: refused})


@pytest.mark.parametrize("key", ["flush.messages", "flush.ms"])
def test_f3_when_to_flush_is_the_brokers_to_say(key: str) -> None:
    """Taken and not obeyed, it would promise durability that ``log.flush=os`` has not."""
    with pytest.raises(ConfigError, match=f"{key}=1: must be .* log.flush of the broker"):
        TOPIC_SPEC.parse({key: "1"})


def test_f3_a_topic_is_compacted_as_configured() -> None:
    cluster = Cluster()
    cluster.log.create_topic("t", (1,))
    assert PartitionLimits(cluster.live).compaction("t") is None
    cluster.set("topic", "t", "cleanup.policy", "compact , delete")
    cluster.set("topic", "t", "min.compaction.lag.ms", 7)
    limits = PartitionLimits(cluster.live)
    assert limits.compaction("t") == CompactionOptions(min_compaction_lag_ms=7)
    assert limits.retention("t").ms > 0
    cluster.set("topic", "t", "segment.ms", 8)
    cluster.set("topic", "t", "segment.bytes", 90)
    compaction = limits.compaction("t")
    assert compaction is not None
    assert (compaction.segment_ms, compaction.segment_bytes) == (8, 90)
    cluster.set("topic", "t", "cleanup.policy", "compact")
    assert limits.retention("t") == KEEP_ALL
    cluster.set("topic", "t", "cleanup.policy", "")
    assert limits.retention("t") == KEEP_ALL
    assert limits.compaction("t") is None


@pytest.mark.parametrize("value", ["delete", "compact", "compact,delete", " delete, compact ", ""])
def test_f3_cleanup_policies_are_kafkas(value: str) -> None:
    TOPIC_SPEC.parse({"cleanup.policy": value})


@pytest.mark.parametrize("value", ["none", "compact,", "delete;compact"])
def test_f3_other_cleanup_policies_are_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="must be delete, compact, or both"):
        TOPIC_SPEC.parse({"cleanup.policy": value})


@pytest.mark.parametrize(
    ("given", "synonyms"),
    [
        ({}, [(HOURS, "168")]),
        ({"log_retention_minutes": 3}, [(MINUTES, "3"), (HOURS, "168")]),
        ({"log_retention_ms": 4}, [(MS, "4"), (HOURS, "168")]),
    ],
)
def test_synonyms_of_retention_are_kafkas_in_their_own_units(
    given: dict[str, int], synonyms: list[tuple[str, str]]
) -> None:
    cluster = Cluster(**given)
    settings = topic_settings(cluster.log.image, cluster.file, ME, "t", TOPIC_RETENTION_MS)
    assert [(one.name, one.text or str(one.value)) for one in settings] == synonyms
