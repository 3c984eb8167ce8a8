"""Answers DescribeConfigs: every key of an entity, its current value, and where the value is set.

Any broker answers for topics and for the configuration of all brokers. Each broker answers only for
its own file, because only it knows that file.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.client_metrics_keys import CLIENT_METRICS, CLIENT_METRICS_SPEC
from quorate.broker.config.dynamic_config import (
    EVERY_BROKER,
    ConfigSource,
    LiveConfiguration,
    Setting,
    broker_settings,
    client_metrics_settings,
    group_settings,
    new_topic_settings,
    own_group_settings,
    topic_settings,
)
from quorate.broker.config.group_keys import GROUP, GROUP_KEYS, GROUP_SPEC
from quorate.broker.config.spec import BROKER_SPEC
from quorate.broker.config.topic_keys import TOPIC_KEYS
from quorate.broker.controller.managers.config_manager import keys_of
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.security.authorizer import Authorizer, Rights, caller_of
from quorate.common.acl_types import AclOperation
from quorate.common.configuration import ConfigKey, Configuration, Update, as_text
from quorate.common.types import BrokerId
from quorate.metadata_log.image import Image
from quorate_proto.v1 import admin_pb2, errors_pb2

_INT_MAX: Final = 2**31 - 1
_BOOLEAN, _STRING, _INT, _LONG, _DOUBLE, _LIST, _PASSWORD = 1, 2, 3, 5, 6, 7, 9
"""Kafka's numbers of value types."""


class ConfigReads:
    """Describes configurations from the newest image and this broker's file."""

    def __init__(
        self, images: MetadataFollower, live: LiveConfiguration, authorizer: Authorizer
    ) -> None:
        self._images = images
        self._live = live
        self._authorizer = authorizer

    @property
    def broker_id(self) -> BrokerId:
        """Return the broker whose own configuration is described here."""
        return self._live.broker_id

    async def describe(
        self, request: admin_pb2.DescribeConfigsRequest
    ) -> admin_pb2.DescribeConfigsResponse:
        """Return one result per entity, in order."""
        rights = self._authorizer.rights_of(caller_of(request.context))
        return describe(request, self._images.image, self._live.file, self._live.broker_id, rights)

    def settings_of_new_topics(self) -> dict[str, Setting[Any]]:
        """Return what is in force for a topic that sets nothing, by topic key."""
        image, live = self._images.image, self._live
        settings = {
            name: next(new_topic_settings(image, live.file, live.broker_id, topic_key), None)
            for name, topic_key in TOPIC_KEYS.items()
        }
        return {name: one for name, one in settings.items() if one is not None}

    async def names(
        self, request: admin_pb2.ListConfigEntitiesRequest
    ) -> admin_pb2.ListConfigEntitiesResponse:
        """Return the entities of a type that have a configuration of their own, sorted."""
        try:
            rights = self._authorizer.rights_of(caller_of(request.context))
            rights.require_cluster(AclOperation.DESCRIBE_CONFIGS)
            if request.entity_type != CLIENT_METRICS:
                raise KafkaError(
                    errors_pb2.INVALID_REQUEST,
                    f"{request.entity_type!r} is not listed here: {CLIENT_METRICS} is",
                )
        except KafkaError as error:
            return admin_pb2.ListConfigEntitiesResponse(
                error_code=error.code, error_message=error.message
            )
        configs = self._images.image.configs
        return admin_pb2.ListConfigEntitiesResponse(
            entity_names=sorted(name for kind, name in configs if kind == CLIENT_METRICS)
        )


def describe(
    request: admin_pb2.DescribeConfigsRequest,
    image: Image,
    file: Configuration,
    broker_id: BrokerId,
    rights: Rights,
) -> admin_pb2.DescribeConfigsResponse:
    """Describe each entity, in order. A refused entity never stops the others."""
    results = []
    for entity in request.entities:
        result = admin_pb2.DescribedConfig(
            entity_type=entity.entity_type, entity_name=entity.entity_name
        )
        try:
            _require_description(rights, entity)
            keys_of(image, entity.entity_type, entity.entity_name)
            wanted = frozenset(entity.keys)
            for key, settings in _settings(image, file, broker_id, entity):
                if settings and (not wanted or key.name in wanted):
                    result.entries.append(_entry(key, settings, request))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return admin_pb2.DescribeConfigsResponse(results=results)


def _require_description(rights: Rights, entity: admin_pb2.ConfigEntity) -> None:
    """Check the right to see an entity. What is no topic or group belongs to the cluster."""
    if entity.entity_type == "topic":
        rights.require_topic(AclOperation.DESCRIBE_CONFIGS, entity.entity_name)
    elif entity.entity_type == GROUP:
        rights.require_group(AclOperation.DESCRIBE_CONFIGS, entity.entity_name)
    else:
        rights.require_cluster(AclOperation.DESCRIBE_CONFIGS)


def _settings(
    image: Image, file: Configuration, broker_id: BrokerId, entity: admin_pb2.ConfigEntity
) -> Iterator[tuple[ConfigKey[Any], list[Setting[Any]]]]:
    """Yield each key, sorted, with all places that set it."""
    name = entity.entity_name
    if entity.entity_type == "topic":
        for _, topic_key in sorted(TOPIC_KEYS.items()):
            yield topic_key.key, list(topic_settings(image, file, broker_id, name, topic_key))
        return
    if entity.entity_type == CLIENT_METRICS:
        for key in sorted(CLIENT_METRICS_SPEC, key=lambda key: key.name):
            yield key, list(client_metrics_settings(image, name, key))
        return
    if entity.entity_type == GROUP:
        yield from _of_group(image, file, broker_id, name)
        return
    if name not in (EVERY_BROKER, str(broker_id)):
        raise KafkaError(
            errors_pb2.INVALID_REQUEST,
            f"broker {name} tells its own configuration, this is broker {broker_id}: ask it, or "
            "ask for that of all brokers, whose name is empty",
        )
    for key in sorted(BROKER_SPEC, key=lambda key: key.name):
        settings: Iterable[Setting[Any]] = broker_settings(image, file, broker_id, key)
        if name == EVERY_BROKER:
            settings = (one for one in settings if one.source is ConfigSource.EVERY_BROKER)
        yield key, list(settings)


def _of_group(
    image: Image, file: Configuration, broker_id: BrokerId, group: str
) -> Iterator[tuple[ConfigKey[Any], list[Setting[Any]]]]:
    for key in sorted(GROUP_SPEC, key=lambda key: key.name):
        group_key = GROUP_KEYS.get(key.name)
        if group_key is None:
            yield key, list(own_group_settings(image, group, key))
        else:
            yield key, list(group_settings(image, file, broker_id, group, group_key))


def _entry(
    key: ConfigKey[Any], settings: Sequence[Setting[Any]], request: admin_pb2.DescribeConfigsRequest
) -> admin_pb2.ConfigEntry:
    in_force = settings[0]
    entry = admin_pb2.ConfigEntry(
        name=key.name,
        read_only=_is_read_only(key),
        source=in_force.source,
        sensitive=key.sensitive,
        type=_kafka_type(key),
        documentation=key.doc if request.include_documentation else "",
    )
    if not key.sensitive:
        entry.value = as_text(in_force.value)
    if request.include_synonyms:
        for one in settings:
            synonym = entry.synonyms.add(name=one.name, source=one.source)
            if not key.sensitive:
                synonym.value = as_text(one.value) if one.text is None else one.text
    return entry


def _is_read_only(key: ConfigKey[Any]) -> bool:
    is_of_brokers = key.name not in TOPIC_KEYS and key.name not in CLIENT_METRICS_SPEC
    return is_of_brokers and key.update is Update.READ_ONLY


def _kafka_type(key: ConfigKey[Any]) -> int:
    if key.sensitive:
        return _PASSWORD
    if key.is_list:
        return _LIST
    if key.type is int:
        return _INT if key.at_most is not None and key.at_most <= _INT_MAX else _LONG
    return {bool: _BOOLEAN, float: _DOUBLE}.get(key.type, _STRING)
