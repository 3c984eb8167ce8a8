"""The dead letter topics of share groups: what is configured of them, and their creation
(KIP-1191)."""

import asyncio
import logging
from typing import Final, Protocol

from quorate.broker.changes.table import CREATE_TOPICS
from quorate.broker.common.errors import error_name
from quorate.broker.config.group_keys import (
    SHARE_DEAD_LETTER_COPY_RECORD_ENABLE,
    SHARE_DEAD_LETTER_TOPIC,
)
from quorate.broker.config.share_groups import (
    DEAD_LETTER_AUTO_CREATE_TOPICS_ENABLE,
    DEAD_LETTER_TOPIC_NAME_PREFIX,
)
from quorate.broker.config.topic_keys import (
    TOPIC_DEAD_LETTERS_ENABLE,
    TOPIC_MAX_MESSAGE_BYTES,
    TOPIC_TIMESTAMP_TYPE,
    TopicKey,
)
from quorate.broker.config.topics import CREATE_TIME
from quorate.broker.control.controller_forwarder import ControllerForwarder
from quorate.broker.coordinator.share.dead_letters.dead_letter_batch import Source
from quorate.broker.coordinator.share.dead_letters.dead_letter_place import (
    Absent,
    DeadLetterSettings,
    Misconfigured,
    Place,
    place_of,
)
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.security.principal import CLUSTER_ADMIN
from quorate.common.background_tasks import BackgroundTasks
from quorate.common.configuration import ConfigKey, T
from quorate_proto.v1 import admin_pb2, errors_pb2

_log: Final = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 0.02
"""The pause before this broker looks again whether a topic was created."""
_CREATE_EVERY_S: Final = 1.0
"""The pause before the creation of the same topic is asked for again."""
_CREATION_TIMEOUT_MS: Final = 30_000


class DeadLetterConfiguration(Protocol):
    """The configuration as it is now, such as ``LiveConfiguration``."""

    def __getitem__(self, key: ConfigKey[T]) -> T: ...

    def of_topic(self, topic: str, topic_key: TopicKey[T]) -> T: ...

    def group_value(self, group: str, key: ConfigKey[T]) -> T: ...


class Refused(Exception):
    """No dead letter is written before a configuration changes."""


class DeadLetterTopics:
    """Finds the partitions that dead letters are written to."""

    def __init__(
        self,
        config: DeadLetterConfiguration,
        images: MetadataFollower,
        forwarder: ControllerForwarder,
    ) -> None:
        self._config = config
        self._images = images
        self._forwarder = forwarder
        self._creations: dict[str, asyncio.Task[None]] = {}
        self._tasks = BackgroundTasks()

    def close(self) -> None:
        """Create no more topics."""
        self._tasks.cancel()

    def topic_of(self, source: Source) -> str:
        """Return the dead letter topic of a group, or "" if there are no dead letters.

        A dead letter topic has none for itself: each dead letter would be the cause of another.
        """
        topic = self._config.group_value(source.group_id, SHARE_DEAD_LETTER_TOPIC)
        return "" if topic == source.tp.topic else topic

    def copies(self, group_id: str) -> bool:
        """Return whether dead letters have what the record has."""
        return self._config.group_value(group_id, SHARE_DEAD_LETTER_COPY_RECORD_ENABLE)

    async def place_for(self, source: Source) -> Place:
        """Return where dead letters go. Wait while the topic is being created.

        Raises:
            Refused: there is no such place.
        """
        while True:
            found = place_of(self._settings(source), source.tp.partition)
            match found:
                case Place():
                    return found
                case Misconfigured(why):
                    raise Refused(why)
                case Absent(topic):
                    self._create(topic)
                    await asyncio.sleep(_LOOK_EVERY_S)

    def _settings(self, source: Source) -> DeadLetterSettings:
        config, topic = self._config, self.topic_of(source)
        return DeadLetterSettings(
            topic=topic,
            prefix=config[DEAD_LETTER_TOPIC_NAME_PREFIX],
            creates=config[DEAD_LETTER_AUTO_CREATE_TOPICS_ENABLE],
            existing=self._images.image.topics.get(topic),
            is_enabled=config.of_topic(topic, TOPIC_DEAD_LETTERS_ENABLE),
            batch_bytes_max=config.of_topic(topic, TOPIC_MAX_MESSAGE_BYTES),
        )

    def _create(self, topic: str) -> None:
        if topic not in self._creations:
            task = self._creations[topic] = self._tasks.start(self._have_created(topic))
            task.add_done_callback(lambda _: self._creations.pop(topic, None))

    async def _have_created(self, topic: str) -> None:
        """Have the controller create a topic with the cluster's defaults, as the cluster's own
        user. The topic keeps the timestamps of dead letters, as in Kafka."""
        new = admin_pb2.NewTopic(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            configs={
                TOPIC_DEAD_LETTERS_ENABLE.key.name: "true",
                TOPIC_TIMESTAMP_TYPE.key.name: CREATE_TIME,
            },
        )
        context = admin_pb2.RequestContext(
            principal_name=str(CLUSTER_ADMIN),
            timeout_ms=_CREATION_TIMEOUT_MS,
            forwarded_by=-1,
            api_name="DeadLetters",
        )
        request = admin_pb2.CreateTopicsRequest(context=context, topics=[new])
        response = await self._forwarder.forward(CREATE_TOPICS, request)
        code = response.error_code or (response.topics[0].error_code if response.topics else 0)
        if code and code != errors_pb2.TOPIC_ALREADY_EXISTS:
            _log.warning("dead letter topic %s is not created: %s", topic, error_name(code))
        await asyncio.sleep(_CREATE_EVERY_S)
