"""Configuration in force: what the metadata says (/config), over the broker's file, over defaults.

A key that may change while brokers run is read where it is used, through ``LiveConfiguration``:
nobody keeps a value. What is derived from one (a partition's limits, say) is derived again when
the watch brings a change.
"""

import enum
import logging
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any, Final, Generic, NamedTuple, cast

from broker.config.spec import BROKER_SPEC
from broker.topic_config import TopicKey
from metadata_log.configuration import (
    ConfigError,
    ConfigKey,
    ConfigSpec,
    Configuration,
    T,
    Update,
)
from metadata_log.image import EntityKey, Image
from metadata_log.types import BrokerId

log = logging.getLogger(__name__)

EVERY_BROKER: Final = ""
"""Entity name of what holds for brokers that have no value of their own."""

DYNAMIC_BROKER_SPEC: Final = ConfigSpec(
    "dynamic broker", [key for key in BROKER_SPEC if key.update is not Update.READ_ONLY]
)


def dynamic_key(name: str, *, of_every_broker: bool) -> ConfigKey[Any]:
    """The key of that name, which may be changed while brokers run.

    Raises:
        ConfigError: unknown, or it takes a restart, or it is each broker's own.
    """
    if name in BROKER_SPEC and name not in DYNAMIC_BROKER_SPEC:
        raise ConfigError(
            f"{name} cannot be changed while brokers run: set it in each broker's configuration "
            "file, and restart"
        )
    key = DYNAMIC_BROKER_SPEC.key(name)
    if of_every_broker and key.update is Update.PER_BROKER:
        raise ConfigError(f"{name} is set for one broker at a time, not for all of them")
    return key


class Source(enum.IntEnum):
    """Where a value is set, as Kafka numbers it."""

    TOPIC = 1
    BROKER = 2
    EVERY_BROKER = 3
    FILE = 4
    DEFAULT = 5


def topics_of(entities: Set[EntityKey]) -> Set[str] | None:
    """Whose configurations these are, if they are those of single topics; None: others' too."""
    topics = {name for kind, name in entities if kind == "topic" and name}
    return topics if len(topics) == len(entities) else None


class Setting(NamedTuple, Generic[T]):
    """A value at one of the places that may give one; ``name`` is the key's there."""

    name: str
    value: T
    source: Source


def broker_settings(
    image: Image, file: Configuration, broker_id: BrokerId, key: ConfigKey[T]
) -> Iterator[Setting[T]]:
    """All places that give a broker's key a value; the first one is in force."""
    if key.update is not Update.READ_ONLY:
        yield from _set_in(image.config("broker", str(broker_id)), key, Source.BROKER)
    if key.update is Update.CLUSTER_WIDE:
        yield from _set_in(image.config("broker", EVERY_BROKER), key, Source.EVERY_BROKER)
    if key.name in file.given:
        yield Setting(key.name, file[key], Source.FILE)
    for other in key.coarser:
        if other.key.name in file.given:
            value = key.parse(other.in_finer_units(file[other.key]))
            yield Setting(other.key.name, value, Source.FILE)
    if key.default is not None:
        yield Setting(key.name, key.default, Source.DEFAULT)


def topic_settings(
    image: Image, file: Configuration, broker_id: BrokerId, topic: str, topic_key: TopicKey[T]
) -> Iterator[Setting[T]]:
    """As ``broker_settings``: the topic's own value goes before all that its broker has."""
    key, broker_key = topic_key
    yield from _set_in(image.config("topic", topic), key, Source.TOPIC)
    if broker_key is not None:
        yield from broker_settings(image, file, broker_id, broker_key)
    elif key.default is not None:
        yield Setting(key.name, key.default, Source.DEFAULT)


def _set_in(values: Mapping[str, str], key: ConfigKey[T], source: Source) -> Iterator[Setting[T]]:
    text = values.get(key.name)
    if text is None:
        return
    try:
        yield Setting(key.name, key.parse(text), source)
    except ConfigError as error:
        # Written by a release with other ranges, or past the controller: the next place decides.
        log.warning("a stored value is passed over: %s", error)


class LiveConfiguration:
    """One broker's configuration as it is now: ``live[KEY]``, ``live.of_topic(topic, KEY)``.

    Each value is looked up once per change of the configuration.
    """

    def __init__(
        self, image: Callable[[], Image], file: Configuration, broker_id: BrokerId
    ) -> None:
        self.file = file
        self.broker_id = broker_id
        self._image = image
        self._configs: object = None
        self._values: dict[object, Any] = {}

    def __getitem__(self, key: ConfigKey[T]) -> T:
        if key.update is Update.READ_ONLY:
            return self.file[key]
        image = self._fresh()
        if key.name not in self._values:
            settings = broker_settings(image, self.file, self.broker_id, key)
            self._values[key.name] = next(settings).value
        return cast("T", self._values[key.name])

    def of_topic(self, topic: str, topic_key: TopicKey[T]) -> T:
        image = self._fresh()
        name = (topic, topic_key.key.name)
        if name not in self._values:
            settings = topic_settings(image, self.file, self.broker_id, topic, topic_key)
            self._values[name] = next(settings).value
        return cast("T", self._values[name])

    def _fresh(self) -> Image:
        """The newest image; what was looked up in another configuration is forgotten."""
        image = self._image()
        if image.configs is not self._configs:
            self._configs = image.configs
            self._values.clear()
        return image
