"""The topics in which coordinators keep what they know: clients may read them, and not write."""

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"

INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})


def partition_of(name: str, partition_count: int) -> int:
    """Where what Kafka calls by ``name``, a group or a transactional id, is coordinated.

    As Kafka has it: Java's hash code of the name, without its sign.
    """
    code = 0
    for unit in memoryview(name.encode("utf-16-le", "surrogatepass")).cast("H"):
        code = (31 * code + unit) & 0xFFFF_FFFF
    return (code & 0x7FFF_FFFF) % partition_count
