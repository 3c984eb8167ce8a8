"""The configuration in force. A value in the metadata log has precedence over one in the broker's
file, which has precedence over the default.

A key that may change while brokers run is read through ``LiveConfiguration`` wherever it is used,
and no other object keeps its value. A value that is derived from a key, such as a limit of a
partition, is derived again when the watch of the metadata log reports a change.
"""

import enum
import logging
from collections.abc import Iterator, Mapping, Set
from typing import Any, Final, Generic, NamedTuple, cast

from quorate.broker.config.client_metrics_keys import CLIENT_METRICS
from quorate.broker.config.group_keys import GROUP, GROUP_KEYS, GroupKey
from quorate.broker.config.spec import BROKER_SPEC
from quorate.broker.config.topic_keys import TopicKey
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.common.configuration import (
    ConfigError,
    ConfigKey,
    ConfigSpec,
    Configuration,
    T,
    Update,
    as_text,
)
from quorate.common.types import BrokerId
from quorate.metadata_log.image import EntityKey, Image

log = logging.getLogger(__name__)

EVERY_BROKER: Final = ""
"""The entity name of the configuration that applies to brokers without a value of their own."""

NO_GROUP: Final = ""
"""The name of a group without a configuration of its own."""

DYNAMIC_BROKER_SPEC: Final = ConfigSpec(
    "dynamic broker", [key for key in BROKER_SPEC if key.update is not Update.READ_ONLY]
)


def dynamic_key(name: str, *, of_every_broker: bool) -> ConfigKey[Any]:
    """Return the key of that name, if it may be changed while brokers run.

    Raises:
        ConfigError: the key is unknown, or a change needs a restart, or each broker has its own
            value.
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


class ConfigSource(enum.IntEnum):
    """The place where a value is set. The numbers are Kafka's."""

    TOPIC = 1
    BROKER = 2
    EVERY_BROKER = 3
    FILE = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


def topics_of(entities: Set[EntityKey]) -> Set[str] | None:
    """Return the topics whose configurations these are, or None if other entities are among
    them."""
    topics = {name for kind, name in entities if kind == "topic" and name}
    return topics if len(topics) == len(entities) else None


class Setting(NamedTuple, Generic[T]):
    """A value of a key, as one of the places that may set it has it. ``name`` is the name of the
    key at that place, and ``text`` the value there if it is in another unit.
    """

    name: str
    value: T
    source: ConfigSource
    text: str | None = None


def broker_settings(
    image: Image, file: Configuration, broker_id: BrokerId, key: ConfigKey[T]
) -> Iterator[Setting[T]]:
    """Yield the value of a broker key at every place that sets one. The first value is in force."""
    if key.update is not Update.READ_ONLY:
        yield from _set_in(image.config("broker", str(broker_id)), key, ConfigSource.BROKER)
    if key.update is Update.CLUSTER_WIDE:
        yield from _set_in(image.config("broker", EVERY_BROKER), key, ConfigSource.EVERY_BROKER)
    if key.name in file.given:
        yield Setting(key.name, file[key], ConfigSource.FILE)
    for other in key.coarser:
        if other.key.name in file.given:
            text = as_text(file[other.key])
            value = key.parse(other.in_finer_units(file[other.key]))
            yield Setting(other.key.name, value, ConfigSource.FILE, text)
    if key.default is not None:
        yield _default(key)


def _default(key: ConfigKey[T]) -> Setting[T]:
    """Return the default. As in Kafka, of several names of a key the coarsest has one."""
    value = cast("T", key.default)
    if not key.coarser:
        return Setting(key.name, value, ConfigSource.DEFAULT)
    coarsest = key.coarser[-1].key
    return Setting(coarsest.name, value, ConfigSource.DEFAULT, as_text(coarsest.default))


def topic_settings(
    image: Image, file: Configuration, broker_id: BrokerId, topic: str, topic_key: TopicKey[T]
) -> Iterator[Setting[T]]:
    """Yield the value of a topic key at every place that sets one, like ``broker_settings``. The
    topic's own value comes first.
    """
    yield from _set_in(image.config("topic", topic), topic_key.key, ConfigSource.TOPIC)
    yield from new_topic_settings(image, file, broker_id, topic_key)


def new_topic_settings(
    image: Image, file: Configuration, broker_id: BrokerId, topic_key: TopicKey[T]
) -> Iterator[Setting[T]]:
    """Yield the value of a topic key at every place that sets one for topics that do not."""
    key, broker_key = topic_key
    if broker_key is not None:
        yield from cast("Iterator[Setting[T]]", broker_settings(image, file, broker_id, broker_key))
    elif key.default is not None:
        yield Setting(key.name, key.default, ConfigSource.DEFAULT)


def client_metrics_settings(
    image: Image, subscription: str, key: ConfigKey[T]
) -> Iterator[Setting[T]]:
    """Yield the value of a key of a subscription to client metrics, and its default."""
    yield from _set_in(image.config(CLIENT_METRICS, subscription), key, ConfigSource.CLIENT_METRICS)
    if key.default is not None:
        yield Setting(key.name, key.default, ConfigSource.DEFAULT)


def group_settings(
    image: Image, file: Configuration, broker_id: BrokerId, group: str, group_key: GroupKey
) -> Iterator[Setting[int]]:
    """Yield the value of a group key at every place that sets one. The group's own comes first."""
    yield from _set_in(image.config(GROUP, group), group_key.key, ConfigSource.GROUP)
    yield from broker_settings(image, file, broker_id, group_key.of_broker)


def own_group_settings(image: Image, group: str, key: ConfigKey[T]) -> Iterator[Setting[T]]:
    """Yield the value of a group key that no key of the broker has the meaning of."""
    yield from _set_in(image.config(GROUP, group), key, ConfigSource.GROUP)
    yield _default(key)


def _set_in(
    values: Mapping[str, str], key: ConfigKey[T], source: ConfigSource
) -> Iterator[Setting[T]]:
    text = values.get(key.name)
    if text is None:
        return
    try:
        yield Setting(key.name, key.parse(text), source)
    except ConfigError as error:
        # A release with other ranges wrote this value, or it did not pass the controller's checks.
        # The next place decides.
        log.warning("a stored value is passed over: %s", error)


class LiveConfiguration:
    """The configuration of one broker as it is now: ``live[KEY]``, ``live.of_topic(topic, KEY)``,
    ``live.of_group(group, KEY)``.

    Each value is looked up once after each change of the configuration.
    """

    def __init__(self, images: MetadataFollower, file: Configuration, broker_id: BrokerId) -> None:
        self.file = file
        self.broker_id = broker_id
        self._images = images
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

    def of_group(self, group: str, group_key: GroupKey) -> int:
        """Return the value of a key for a group, within the limits of this broker.

        Values of groups are looked up each time, because there may be very many groups.
        """
        own = self._fresh().config(GROUP, group)
        if group_key.key.name not in own:
            return group_key.within_limits(self[group_key.of_broker], self)
        image = self._images.image
        found = next(group_settings(image, self.file, self.broker_id, group, group_key))
        return group_key.within_limits(found.value, self)

    def group_value(self, group: str, key: ConfigKey[T]) -> T:
        """Return the value of any key of groups for a group, which need not exist."""
        group_key = GROUP_KEYS.get(key.name)
        if group_key is not None:
            value: Any = self.of_group(group, group_key)
            return cast("T", value)
        return next(own_group_settings(self._fresh(), group, key)).value

    def _fresh(self) -> Image:
        """Return the newest image. If its configuration has changed, the values that were looked up
        before are forgotten.
        """
        image = self._images.image
        if image.configs is not self._configs:
            self._configs = image.configs
            self._values.clear()
        return image
