"""Features: levels that processes of two versions agree on while a cluster is being upgraded (B4).

A level is raised by hand, once all that must understand it do: the new software is rolled out first
and behaves as the old one until then. ``inter_broker_protocol`` is about what brokers say to one
another; ``metadata_version`` about which kinds of record may be written, so that voters of
mixed versions cannot diverge: what an old one cannot read, a new one does not obey.

What ``apply`` asks of a level hangs on the log alone, never on what this very version knows:
voters of two versions must come to the same answer.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

import immutables

from metadata_log.client_quotas import CONTROLLER_MUTATION_RATE, QuotaEntity, stored_name
from metadata_log.image import Broker, EntityKey
from metadata_log.records import BrokerRegistration
from metadata_log.types import BrokerId

INTER_BROKER_PROTOCOL: Final = "inter_broker_protocol"
METADATA_VERSION: Final = "metadata_version"

LEAST_LEVEL: Final = 1
"""Of every feature, and the one in force where nothing was ever said."""

CACHEABLE_CONTROL_REQUESTS: Final = 2
"""``inter_broker_protocol``: control requests name the newest broker epoch, not the receiver's."""

ADMINISTRATION_BY_CONTROLLER: Final = 2
"""``inter_broker_protocol``: the controller alone writes configurations, ACLs, quotas, tokens and
credentials; below, the broker that is asked does (F6)."""

BRIDGE: Final = 3
"""``metadata_version``: brokers may write those at inter_broker_protocol 1, by compare-and-set."""

PIPELINES: Final = 4
"""``metadata_version``: how far pipelines are is kept."""

NEWEST_INTER_BROKER_PROTOCOL: Final = 2
NEWEST_METADATA_VERSION: Final = 4


class Feature(NamedTuple):
    """A feature as this version knows it."""

    newest: int
    supported_by: Callable[[BrokerRegistration], int]
    """Highest level that the registered broker understands."""
    levels: tuple[str, ...]
    """What each level from 1 on means, for people."""


FEATURES: Final[dict[str, Feature]] = {
    INTER_BROKER_PROTOCOL: Feature(
        NEWEST_INTER_BROKER_PROTOCOL,
        lambda broker: broker.inter_broker_protocol_max,
        (
            "control requests name their receiver's broker epoch: made for each broker anew; the "
            "broker that is asked writes configurations, ACLs, quotas, tokens and credentials",
            "control requests name the newest broker epoch: made once, sent to all; the controller "
            "alone writes configurations, ACLs, quotas, tokens and credentials",
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
        ),
    ),
}

KEYS_SINCE: Final = {CONTROLLER_MUTATION_RATE: 2}
"""Keys, of quotas and configurations, that brokers below a level of ``inter_broker_protocol`` do
not know (Q7)."""


class _Brokers(Protocol):
    def items(self) -> Iterable[tuple[BrokerId, Broker]]: ...


class _Levels(Protocol):
    def get(self, key: str, /) -> int | None: ...


class _Configs(Protocol):
    def items(self) -> "Iterable[tuple[EntityKey, immutables.Map[str, str]]]": ...


class _ClientQuotas(Protocol):
    def items(self) -> "Iterable[tuple[QuotaEntity, immutables.Map[str, float]]]": ...


class Leveled(Protocol):
    """What is asked about levels: an ``Image`` or a ``Draft``."""

    @property
    def brokers(self) -> _Brokers: ...

    @property
    def features(self) -> _Levels: ...

    @property
    def configs(self) -> _Configs: ...

    @property
    def client_quotas(self) -> _ClientQuotas: ...


def level_of(key: str) -> int:
    """The ``inter_broker_protocol`` from which on brokers know a key."""
    return KEYS_SINCE.get(stored_name(key), LEAST_LEVEL)


def metadata_version(image: Leveled) -> int:
    """The records that may be written: those introduced up to this level."""
    return image.features.get(METADATA_VERSION) or LEAST_LEVEL


def inter_broker_protocol(image: Leveled) -> int:
    """The form in which brokers speak to one another.

    Until the first controller has put it down: what all live brokers understand.
    """
    return image.features.get(INTER_BROKER_PROTOCOL) or understood_by_all(
        image, INTER_BROKER_PROTOCOL
    )


def brokers_may_write(image: Leveled) -> bool:
    """Whether the broker that is asked for a change of administration writes it by itself (F6).

    Only where inter_broker_protocol 1 was put down: voters must not guess.
    """
    level = image.features.get(INTER_BROKER_PROTOCOL)
    bridged = metadata_version(image) >= BRIDGE
    return bridged and level is not None and level < ADMINISTRATION_BY_CONTROLLER


def understood_by_all(image: Leveled, feature: str) -> int:
    """The highest level that every live broker understands."""
    supported_by = FEATURES[feature].supported_by
    return min(
        (supported_by(broker.registration) for _, broker in image.brokers.items()),
        default=LEAST_LEVEL,
    )


def why_not(image: Leveled, feature: str, level: int) -> str | None:
    """Why ``feature`` cannot be at ``level`` from now on; None: it can."""
    if level < LEAST_LEVEL:
        return f"{feature} has no level {level}: levels begin at {LEAST_LEVEL}"
    now = image.features.get(feature) or LEAST_LEVEL
    if level >= now:
        return _who_does_not_understand(image, feature, level)
    if feature == METADATA_VERSION:
        return (
            f"{feature} cannot go back from {now} to {level}: the log may hold records that "
            "older voters and brokers cannot read"
        )
    if feature == INTER_BROKER_PROTOCOL:
        return _what_would_be_lost(image, level)
    return None


def why_not_register(image: Leveled, registration: BrokerRegistration) -> str | None:
    """Why that broker cannot take part at the levels in force; None: it can."""
    for name, feature in FEATURES.items():
        level = image.features.get(name) or LEAST_LEVEL
        understood = feature.supported_by(registration)
        if understood < level:
            return (
                f"{name} is at level {level}, and broker {registration.broker_id} understands "
                f"{understood} at most: start it with newer software, or with "
                f"inter.broker.protocol.version unset"
            )
    return None


def _who_does_not_understand(image: Leveled, feature: str, level: int) -> str | None:
    known = FEATURES.get(feature)
    behind = [
        f"broker {broker_id} ({understood} at most)"
        for broker_id, broker in sorted(image.brokers.items())
        if (understood := known.supported_by(broker.registration) if known else 0) < level
    ]
    if not behind:
        return None
    return f"level {level} of {feature} is not understood by {', '.join(behind)}: upgrade it first"


def _what_would_be_lost(image: Leveled, level: int) -> str | None:
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
