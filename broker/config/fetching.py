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
