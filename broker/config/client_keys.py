"""The keys that apply to clients: fetches by consumers, and the windows over which the usage of
clients is measured. They have Kafka's names and defaults.
"""

from typing import Final

from quorate.common.configuration import ConfigKey

MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS: Final = ConfigKey(
    name="max.incremental.fetch.session.cache.slots",
    type=int,
    default=1000,
    at_least=0,
    doc="How many fetch sessions of consumers a broker keeps. Within a session, requests and "
    "responses name only the partitions with news. A consumer without a session names all its "
    "partitions each time.",
)
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
REPLICA_SELECTOR_CLASS: Final = ConfigKey(
    name="replica.selector.class",
    type=str,
    default="",
    one_of=("", "org.apache.kafka.common.replica.LeaderSelector", RACK_AWARE_SELECTOR),
    doc="With RackAwareReplicaSelector, a consumer that sets client.rack is sent to an in-sync "
    "replica in its own rack (broker.rack). Otherwise all consumers read from leaders.",
)


CONTROLLER_QUOTA_WINDOW_NUM: Final = ConfigKey(
    name="controller.quota.window.num",
    type=int,
    default=11,
    at_least=1,
    doc="How many windows a burst of controller mutations may fill at once (Q8).",
)
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS: Final = ConfigKey(
    name="controller.quota.window.size.seconds",
    type=int,
    default=1,
    at_least=1,
    doc="The length of a window of controller mutations.",
)
QUOTA_WINDOW_NUM: Final = ConfigKey(
    name="quota.window.num",
    type=int,
    default=11,
    at_least=1,
    doc="The number of windows over which the bytes and request times of clients are counted.",
)
QUOTA_WINDOW_SIZE_SECONDS: Final = ConfigKey(
    name="quota.window.size.seconds",
    type=int,
    default=1,
    at_least=1,
    doc="The length of a window of clients' bytes and request times.",
)
