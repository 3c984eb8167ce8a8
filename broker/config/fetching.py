"""What consumers' fetches may keep at a broker. Kafka's names and defaults."""

from typing import Final

from metadata_log.configuration import ConfigKey

MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS: Final = ConfigKey(
    name="max.incremental.fetch.session.cache.slots",
    type=int,
    default=1000,
    at_least=0,
    doc="Fetch sessions of consumers that a broker keeps: within one, a request and its answer "
    "name only partitions with news. Whoever gets none names all of them each time.",
)
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
REPLICA_SELECTOR_CLASS: Final = ConfigKey(
    name="replica.selector.class",
    type=str,
    default="",
    one_of=("", "org.apache.kafka.common.replica.LeaderSelector", RACK_AWARE_SELECTOR),
    doc="RackAwareReplicaSelector: consumers with a client.rack are sent to a replica in sync in "
    "their rack (broker.rack) to read from. Else all read from leaders.",
)
