"""Which brokers are in a consumer's rack, and can be reached where it came in (KIP-392)."""

from collections import defaultdict

from broker.config.fetching import RACK_AWARE_SELECTOR, REPLICA_SELECTOR_CLASS
from broker.kafka.requests import RequestContext
from broker.kafka.services import KafkaServices
from metadata_log.types import BrokerId

_NOBODY: frozenset[BrokerId] = frozenset()


class RackMates:
    """Looked up once for each set of live brokers."""

    def __init__(self) -> None:
        self._brokers: object = None
        self._mates: dict[tuple[str, str], frozenset[BrokerId]] = {}

    def of(
        self, services: KafkaServices, context: RequestContext, rack: str
    ) -> frozenset[BrokerId] | None:
        """As ``near`` of ``Replicas.fetch``; None: the consumer named no rack."""
        if not rack:
            return None
        if services.config[REPLICA_SELECTOR_CLASS] != RACK_AWARE_SELECTOR:
            return _NOBODY
        brokers = services.metadata.brokers
        if brokers is not self._brokers:
            mates: defaultdict[tuple[str, str], set[BrokerId]] = defaultdict(set)
            for broker_id, broker in brokers.items():
                for listener in broker.listeners:
                    mates[broker.rack, listener].add(broker_id)
            self._mates = {place: frozenset(some) for place, some in mates.items()}
            self._brokers = brokers
        return self._mates.get((rack, context.listener), _NOBODY)
