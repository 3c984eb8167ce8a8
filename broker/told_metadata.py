"""The cluster as a broker was told it by UpdateMetadata, as narrow protocols (C19).

``control.metadata_cache`` is the real one. The Kafka listener and range reads answer from it, and
tests bring fakes of the same surface.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from metadata_log.types import BrokerEpoch, BrokerId, Endpoint, LeaderEpoch, TopicId


class KnownPartition(Protocol):
    """Leadership of one partition. ``leader`` -1: none."""

    @property
    def leader(self) -> BrokerId: ...
    @property
    def leader_epoch(self) -> LeaderEpoch: ...
    @property
    def replicas(self) -> tuple[BrokerId, ...]: ...
    @property
    def isr(self) -> tuple[BrokerId, ...]: ...


class KnownTopic(Protocol):
    """One topic; partition number = position."""

    @property
    def topic_id(self) -> TopicId: ...
    @property
    def partitions(self) -> Sequence[KnownPartition]: ...


class KnownBroker(Protocol):
    """One live broker. ``rack`` empty: none."""

    @property
    def kafka(self) -> Endpoint: ...
    @property
    def grpc(self) -> Endpoint: ...
    @property
    def rack(self) -> str: ...
    @property
    def listeners(self) -> Mapping[str, Endpoint]: ...
    @property
    def epoch(self) -> BrokerEpoch: ...


def endpoints_at(
    brokers: Mapping[BrokerId, KnownBroker], listener: str
) -> dict[BrokerId, Endpoint]:
    """Where clients that came by that listener find the brokers; those without it are left out:
    another listener's address would not be protected as these clients ask."""
    return {
        broker_id: broker.listeners[listener]
        for broker_id, broker in brokers.items()
        if listener in broker.listeners
    }


class ToldMetadata(Protocol):
    """Brokers, topics and the controller.

    Every change comes with a new mapping of ``brokers``, so answers may be cached by its identity.
    """

    @property
    def controller_id(self) -> BrokerId: ...
    @property
    def brokers(self) -> Mapping[BrokerId, KnownBroker]: ...
    @property
    def topics(self) -> Mapping[str, KnownTopic]: ...

    def topic_name(self, topic_id: TopicId) -> str | None: ...
