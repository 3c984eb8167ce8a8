"""The internal topics, in which coordinators keep their state. Clients may read these topics, but
not write to them.
"""

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"

INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})


def partition_of(name: str, partition_count: int) -> int:
    """Return the partition in which a group, a transactional id or a share-partition has its
    coordinator.

    Like Kafka, this uses Java's hash code of the name, without its sign.
    """
    code = 0
    for unit in memoryview(name.encode("utf-16-le", "surrogatepass")).cast("H"):
        code = (31 * code + unit) & 0xFFFF_FFFF
    return (code & 0x7FFF_FFFF) % partition_count
