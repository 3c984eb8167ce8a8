"""Configuration of one topic: its own keys, and the broker's value where a topic sets none."""

from typing import Any, Final, NamedTuple

from broker.config.topics import (
    MESSAGE_MAX_BYTES,
    MIN_INSYNC_REPLICAS,
    UNCLEAN_LEADER_ELECTION_ENABLE,
)
from metadata_log.configuration import ConfigKey, ConfigSpec, Configuration
from metadata_log.image import Image


class TopicKey(NamedTuple):
    """A topic's key and the broker key whose value it takes the place of, if there is one."""

    key: ConfigKey[Any]
    broker_key: ConfigKey[Any] | None = None


def _over(name: str, broker_key: ConfigKey[Any], doc: str) -> TopicKey:
    """A topic key with the type and range of the broker key that it overrides."""
    key = ConfigKey(
        name=name,
        type=broker_key.type,
        doc=doc,
        default=broker_key.default,
        at_least=broker_key.at_least,
        at_most=broker_key.at_most,
        one_of=broker_key.one_of,
    )
    return TopicKey(key, broker_key)


TOPIC_MIN_INSYNC_REPLICAS: Final = _over(
    "min.insync.replicas", MIN_INSYNC_REPLICAS, "Smallest ISR at which acks=all is accepted."
)
TOPIC_UNCLEAN_LEADER_ELECTION: Final = _over(
    "unclean.leader.election.enable",
    UNCLEAN_LEADER_ELECTION_ENABLE,
    "Let a replica outside the ISR lead when nobody in it lives: loses data (C2).",
)
TOPIC_MAX_MESSAGE_BYTES: Final = _over(
    "max.message.bytes", MESSAGE_MAX_BYTES, "Largest record batch accepted."
)


def _throttled(side: str, doc: str) -> TopicKey:
    """Replicas of a topic, as Kafka names them for throttling (KIP-73)."""
    return TopicKey(
        ConfigKey(
            name=f"{side}.replication.throttled.replicas",
            type=str,
            default="",
            doc=doc,
            pattern=r"\*|(\d+:\d+(,\d+:\d+)*)?",
            form="* or partition:broker,partition:broker,…",
        )
    )


TOPIC_LEADER_THROTTLED_REPLICAS: Final = _throttled(
    "leader", "Replicas whose data is throttled where it is sent from: 0:1,0:2 or *."
)
TOPIC_FOLLOWER_THROTTLED_REPLICAS: Final = _throttled(
    "follower", "Replicas whose data is throttled where it is taken: 0:1,0:2 or *."
)

_KEYS: Final = (
    TOPIC_MIN_INSYNC_REPLICAS,
    TOPIC_UNCLEAN_LEADER_ELECTION,
    TOPIC_MAX_MESSAGE_BYTES,
    TOPIC_LEADER_THROTTLED_REPLICAS,
    TOPIC_FOLLOWER_THROTTLED_REPLICAS,
)

TOPIC_SPEC: Final = ConfigSpec("topic", [topic_key.key for topic_key in _KEYS])
"""What CreateTopics accepts as configuration."""


def topic_value(image: Image, broker: Configuration, topic: str, topic_key: TopicKey) -> Any:  # noqa: ANN401 - as typed by the key
    """The value in force: the topic's own, else the broker's, else the default."""
    own = image.config("topic", topic).get(topic_key.key.name)
    if own is not None:
        return topic_key.key.parse(own)
    if topic_key.broker_key is not None:
        return broker[topic_key.broker_key]
    return topic_key.key.default
