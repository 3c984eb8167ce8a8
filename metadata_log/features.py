"""Features: levels on which processes of two versions agree while a cluster is being upgraded (B4).

An operator raises a level once all processes understand it: the new software is rolled out first,
and behaves as the old one until then. ``inter_broker_protocol`` governs what brokers send to one
another. ``metadata_version`` governs which kinds of record may be written, so that voters of mixed
versions cannot diverge: what an old voter cannot read, a new one does not obey.
``transaction.version`` governs how transactions are coordinated and stored. ``Image`` has the
levels in force.

What ``apply`` learns of a level depends on the log alone, never on what this very version knows:
voters of two versions must come to the same result.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from quorate.metadata_log.client_quotas import CONTROLLER_MUTATION_RATE, stored_name
from quorate.metadata_log.draft import Draft
from quorate.metadata_log.image import (
    INTER_BROKER_PROTOCOL,
    LEAST_LEVEL,
    METADATA_VERSION,
    TRANSACTION_VERSION,
    Image,
)
from quorate.metadata_log.records import BrokerRegistration

CACHEABLE_CONTROL_REQUESTS: Final = 2
"""From this ``inter_broker_protocol`` on, control requests name the newest broker epoch, not the
receiver's.
"""

ADMINISTRATION_BY_CONTROLLER: Final = 2
"""From this ``inter_broker_protocol`` on, only the controller writes configurations, ACLs, quotas,
tokens and credentials; below it, the broker that receives the request does (F6).
"""

METADATA_FROM_LOG: Final = 3
"""From this ``inter_broker_protocol`` on, brokers take what they show to clients, and the content
of an INIT, from their own image of the metadata log. The controller names the offset that the image
must have reached.
"""

CONSUMER_GROUPS: Final = 3
"""From this ``inter_broker_protocol`` on, all brokers coordinate groups of the consumer protocol
(KIP-848). A broker of an earlier release would pass over their records.
"""

SHARE_GROUPS: Final = 3
"""From this ``inter_broker_protocol`` on, all brokers coordinate share groups and keep the states
of share-partitions (KIP-932). A broker of an earlier release would pass over their records.
"""

BRIDGE: Final = 3
"""From this ``metadata_version`` on, brokers may write those at inter_broker_protocol 1, by
compare-and-set.
"""

PIPELINES: Final = 4
"""From this ``metadata_version`` on, the progress of pipelines is stored."""

BROKER_HISTORY: Final = 5
"""From this ``metadata_version`` on, the image remembers which topics were deleted, which
incarnation of a broker came last, and which single replicas a broker has lost.
"""

PROVEN_WRITERS: Final = 5
"""From this ``metadata_version`` on, sessions and transactions carry the id of the broker whose
certificate brought them, and apply to nothing that is another broker's.
"""

LOGIN_PROTECTION: Final = 6
"""From this ``metadata_version`` on, all brokers make the credentials of users who do not exist
from the same key, and addresses can have quotas.
"""

TRANSACTION_LEVELS: Final = 7
"""From this ``metadata_version`` on, ``transaction.version`` is a feature. Whoever reads these
records understands all of its levels.
"""

NEWEST_INTER_BROKER_PROTOCOL: Final = 3
NEWEST_METADATA_VERSION: Final = 7
NEWEST_TRANSACTION_VERSION: Final = 2


READ_BY_RELEASE_0_1: Final = 4


class Feature(NamedTuple):
    """A feature, as this version knows it."""

    newest: int
    supported_by: Callable[[BrokerRegistration], int]
    """Returns the highest level that the registered broker understands."""
    levels: tuple[str, ...]
    """The meaning of each level from 1 on, for people."""
    least: int = LEAST_LEVEL
    """The lowest level, and the one in force while none was ever written."""
    since: int = LEAST_LEVEL
    """The ``metadata_version`` from which on the feature exists. Voters must agree about it, so
    below that it is treated as one that nobody knows."""

    def level(self, image: Image | Draft, name: str) -> int:
        """Return the level in force of the feature, whose name this is."""
        return image.features.get(name) or self.least


FEATURES: Final[dict[str, Feature]] = {
    INTER_BROKER_PROTOCOL: Feature(
        NEWEST_INTER_BROKER_PROTOCOL,
        lambda broker: broker.inter_broker_protocol_max,
        (
            "control requests name their receiver's broker epoch: made for each broker anew; the "
            "broker that is asked writes configurations, ACLs, quotas, tokens and credentials",
            "control requests name the newest broker epoch: made once, sent to all; the controller "
            "alone writes configurations, ACLs, quotas, tokens and credentials",
            "also brokers take all metadata from the metadata log: the controller names the offset "
            "that they must have reached; groups may use the consumer protocol; share groups",
        ),
    ),
    METADATA_VERSION: Feature(
        NEWEST_METADATA_VERSION,
        lambda broker: broker.metadata_version_max,
        (
            "topics, leadership, configuration, sessions, voters",
            "also reassignments, and partitions that are added and removed",
            "also access control, client quotas, SCRAM credentials and delegation tokens",
            "also how far pipelines are",
            "also deleted topics, the last incarnation of each broker, single lost replicas, and "
            "which broker's certificate opened a session",
            "also quotas of addresses, and the key for credentials of users who do not exist",
            "also the levels of transaction.version",
        ),
    ),
    TRANSACTION_VERSION: Feature(
        NEWEST_TRANSACTION_VERSION,
        lambda broker: (
            NEWEST_TRANSACTION_VERSION if broker.metadata_version_max >= TRANSACTION_LEVELS else 0
        ),
        (
            "what the log holds about transactions can have new fields",
            "also each transaction has its own producer epoch, and leaders add partitions to it",
        ),
        least=0,
        since=TRANSACTION_LEVELS,
    ),
}

KEYS_SINCE: Final = {CONTROLLER_MUTATION_RATE: 2}
"""Keys of quotas and configurations with the level of ``inter_broker_protocol`` from which on
brokers know them (Q7).
"""


def level_of(key: str) -> int:
    """Return the ``inter_broker_protocol`` from which on brokers know the key."""
    return KEYS_SINCE.get(stored_name(key), LEAST_LEVEL)


def why_unreadable(image: Image, level: int) -> str | None:
    """Return why a process that reads records up to ``level`` of metadata_version cannot follow
    the log, or None if it can. 0 is a process of 0.1.0, which does not say its level.
    """
    if image.metadata_version <= (level or READ_BY_RELEASE_0_1):
        return None
    return (
        f"the quorum writes records of {METADATA_VERSION} {image.metadata_version}, and this "
        f"process reads {level or READ_BY_RELEASE_0_1} at most: install the newer version on it"
    )


def brokers_may_write(image: Image | Draft) -> bool:
    """Return whether the broker that receives a change of administration writes it itself (F6).

    This holds only where inter_broker_protocol 1 was written to the log: voters must not guess.
    """
    level = image.features.get(INTER_BROKER_PROTOCOL)
    bridged = image.metadata_version >= BRIDGE
    return bridged and level is not None and level < ADMINISTRATION_BY_CONTROLLER


def understood_by_all(image: Image | Draft, feature: str) -> int:
    """Return the highest level that every live broker understands."""
    known = FEATURES[feature]
    if image.metadata_version < known.since:
        return known.least
    return min(
        (known.supported_by(broker.registration) for _, broker in image.brokers.items()),
        default=known.least,
    )


def why_not(image: Image | Draft, feature: str, level: int) -> str | None:
    """Return why ``feature`` cannot be set to ``level`` now, or None if it can."""
    known = _known(image, feature)
    least = LEAST_LEVEL if known is None else known.least
    if level < least:
        return f"{feature} has no level {level}: levels begin at {least}"
    now = image.features.get(feature) or least
    if level >= now:
        return _who_does_not_understand(image, feature, level)
    if feature == METADATA_VERSION:
        return (
            f"{feature} cannot go back from {now} to {level}: the log may hold records that "
            "older voters and brokers cannot read"
        )
    if feature == INTER_BROKER_PROTOCOL:
        return _what_would_be_lost(image, level)
    if feature == TRANSACTION_VERSION and level == 0:
        return (
            f"{feature} cannot go back from {now} to 0: __transaction_state may hold records that "
            "older brokers cannot read"
        )
    return None


def _known(image: Image | Draft, name: str) -> Feature | None:
    """Return the feature, if there is one of this name at the metadata_version in force."""
    known = FEATURES.get(name)
    return None if known is None or image.metadata_version < known.since else known


def why_not_register(image: Image | Draft, registration: BrokerRegistration) -> str | None:
    """Return why this broker cannot take part at the levels in force, or None if it can."""
    for name, feature in FEATURES.items():
        level = feature.level(image, name)
        understood = feature.supported_by(registration)
        if understood < level:
            return (
                f"{name} is at level {level}, and broker {registration.broker_id} understands "
                f"{understood} at most: start it with newer software, or with "
                f"inter.broker.protocol.version unset"
            )
    return None


def _who_does_not_understand(image: Image | Draft, feature: str, level: int) -> str | None:
    known = _known(image, feature)
    behind = [
        f"broker {broker_id} ({understood} at most)"
        for broker_id, broker in sorted(image.brokers.items())
        if (understood := known.supported_by(broker.registration) if known else 0) < level
    ]
    if not behind:
        return None
    if known is None and feature in FEATURES:
        return (
            f"{feature} needs {METADATA_VERSION} {FEATURES[feature].since}, and "
            f"{image.metadata_version} is in force: quorate features upgrade --feature "
            f"{METADATA_VERSION}"
        )
    return f"level {level} of {feature} is not understood by {', '.join(behind)}: upgrade it first"


def _what_would_be_lost(image: Image | Draft, level: int) -> str | None:
    lost = [
        f"{key} of {entity_type} {name or 'default'!r}"
        for (entity_type, name), values in image.configs.items()
        for key in values
        if level_of(key) > level
    ]
    lost += [
        f"{key} of {entity}"
        for entity, quotas in image.client_quotas.items()
        for key in quotas
        if level_of(key) > level
    ]
    if not lost:
        return None
    lost.sort()
    return (
        f"level {level} of {INTER_BROKER_PROTOCOL} does not know {', '.join(lost)}, which would be "
        "lost: remove it first"
    )
