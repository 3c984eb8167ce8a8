"""The configuration of created topics, as CreateTopics answers it from version 5 on (KIP-525).

It has every key of a topic. A request may create many topics, which have most values in common, so
each value is encoded once for a request, and a topic's own values beside them.
"""

from collections.abc import Mapping
from typing import Final

from quorate.broker.config.dynamic_config import ConfigSource
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire import codec
from quorate.broker.kafka.wire.codec import Encoded
from quorate.broker.kafka.wire.kio_layouts import EntityType
from quorate.broker.kafka.wire.stepwise import array_of, shape_of
from quorate.common.configuration import as_text

FIRST_VERSION: Final = 5


class NewTopicConfigs:
    """Encodes the configurations of the topics of one request."""

    def __init__(self, services: KafkaServices, version: int) -> None:
        schema = codec.schema_of("create_topics", version, EntityType.response)
        self._flexible = bool(schema.__flexible__)
        shape = shape_of(shape_of(schema, "topics").nested, "configs")
        self._encode = codec.element_encoder(shape, self._flexible)
        self._common = {
            name: self._entry(name, as_text(one.value), one.source)
            for name, one in services.configs.settings_of_new_topics().items()
        }

    def of(self, own: Mapping[str, str]) -> Encoded:
        """Return the whole array for a topic that sets ``own``."""
        entries = self._common | {
            name: self._entry(name, value, ConfigSource.TOPIC) for name, value in own.items()
        }
        in_order = [entry for _, entry in sorted(entries.items())]
        return Encoded(array_of(len(in_order), b"".join(in_order), self._flexible))

    def _entry(self, name: str, value: str, source: int) -> bytes:
        entry = bytearray()
        self._encode(
            entry,
            {
                "name": name,
                "value": value,
                "read_only": False,
                "config_source": source,
                "is_sensitive": False,
            },
        )
        return bytes(entry)
