"""Features under the names and levels that Kafka's clients and tools know (KIP-584, KIP-1022).

``metadata_version`` is Kafka's ``metadata.version``. Tools and user interfaces take the level of
that for the release of Kafka that a cluster speaks like, and print it as one. So the newest level
here is shown as that of Kafka 4.3, and each older one as a level before it. ``kraft.version`` is
1, because voters can be added and removed (KIP-853). ``group.version`` is 1 where groups may use
the consumer protocol (KIP-848), and ``share.version`` is 1 where there may be share groups
(KIP-932), which ``inter_broker_protocol`` says. The other features have one name everywhere.
"""

from collections.abc import Mapping
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.kafka.wire.codec import Message
from quorate.metadata_log.features import (
    CONSUMER_GROUPS,
    FEATURES,
    NEWEST_METADATA_VERSION,
    SHARE_GROUPS,
)
from quorate.metadata_log.image import METADATA_VERSION, Image
from quorate_proto.v1 import errors_pb2

KAFKA_METADATA_VERSION: Final = "metadata.version"

_NEWEST_OF_KAFKA: Final = 30
"""The level of metadata.version of Kafka 4.3, 4.3-IV0."""

_OLDER_LEVELS: Final = (7, 8, 14, 21, 25, 29)
"""Kafka's level that stands for each level of metadata_version from 1 on, while it is not the
newest. The third is 3.6-IV2, which brought delegation tokens to KRaft, as our third level did.
"""

_FIRST_VERSION_WITH_LEVEL_0: Final = 4

_GROUP_VERSION: Final = "group.version"
_SHARE_VERSION: Final = "share.version"

_FIXED: Final[Mapping[str, int]] = {_GROUP_VERSION: 1, "kraft.version": 1, _SHARE_VERSION: 1}
"""Features that have this level alone."""

_NOT_HERE: Final[Mapping[str, str]] = {
    "eligible.leader.replicas.version": "there are no eligible leader replicas (KIP-966)",
    "streams.version": "there are no groups of Kafka Streams on brokers (KIP-1071)",
}
"""Kafka's features that are not served, unless ``FEATURES`` has them."""


def supported(version: int) -> list[Message]:
    """Return the features that this broker understands, for a version of ApiVersions.

    Clients before version 4 refuse an answer with a level 0 (KIP-1022).
    """
    lowest = 0 if version >= _FIRST_VERSION_WITH_LEVEL_0 else 1
    return [
        {"name": name, "min_version": max(lowest, least), "max_version": newest}
        for name, least, newest in [
            *(_shown(name, feature.least, feature.newest) for name, feature in FEATURES.items()),
            *((name, level, level) for name, level in _FIXED.items()),
        ]
    ]


def finalized(image: Image) -> list[Message]:
    """Return the features in force, for ApiVersions."""
    levels = dict(_shown(name, level, level)[:2] for name, level in image.features.items() if level)
    levels |= _FIXED
    if image.inter_broker_protocol < CONSUMER_GROUPS:
        del levels[_GROUP_VERSION]
    if image.inter_broker_protocol < SHARE_GROUPS:
        del levels[_SHARE_VERSION]
    return [
        {"name": name, "max_version_level": level, "min_version_level": level}
        for name, level in sorted(levels.items())
    ]


def is_as_asked(name: str, level: int) -> bool:
    """Return whether a feature that cannot change has the level: 0 for one that is not here."""
    return name not in FEATURES and level == _FIXED.get(name, 0)


def own_level(name: str, level: int) -> tuple[str, int]:
    """Return the feature and level for the controller, from Kafka's name and level.

    Raises:
        KafkaError: there is no such feature or level here.
    """
    if name == KAFKA_METADATA_VERSION:
        return METADATA_VERSION, _own_metadata_version(level)
    if name in FEATURES:
        if level < 1:
            raise _failed(f"{name} cannot be removed: levels begin at 1")
        return name, level
    if name in _FIXED:
        raise _failed(f"{name} is always at level {_FIXED[name]}")
    why = _NOT_HERE.get(name, f"{', '.join([*FEATURES, KAFKA_METADATA_VERSION])} are known")
    raise _failed(f"there is no feature {name!r}: {why}")


def _shown(name: str, least: int, newest: int) -> tuple[str, int, int]:
    if name != METADATA_VERSION:
        return name, least, newest
    return KAFKA_METADATA_VERSION, _kafka_level(least), _kafka_level(newest)


def _kafka_level(level: int) -> int:
    if level >= NEWEST_METADATA_VERSION:
        return _NEWEST_OF_KAFKA
    return _OLDER_LEVELS[level - 1]


def _own_metadata_version(kafka_level: int) -> int:
    """Return the newest level that is shown as ``kafka_level`` or an older one."""
    reached = [
        level
        for level in range(1, NEWEST_METADATA_VERSION + 1)
        if _kafka_level(level) <= kafka_level
    ]
    if not reached or kafka_level > _NEWEST_OF_KAFKA:
        raise _failed(
            f"{KAFKA_METADATA_VERSION} has no level {kafka_level}: its levels are those of Kafka "
            f"from {_kafka_level(1)} (3.3-IV3) to {_NEWEST_OF_KAFKA} (4.3-IV0)"
        )
    return reached[-1]


def _failed(why: str) -> KafkaError:
    return KafkaError(errors_pb2.FEATURE_UPDATE_FAILED, why)
