"""The changes that a truncation makes to the rows of a table."""

import msgspec

from quorate.broker.log.checkpoints.checked_rows import RowReader, RowWriter
from quorate.broker.log.checkpoints.partition_row import PartitionRow, Truncation
from quorate.broker.log.checkpoints.table_rows import (
    NUMBER,
    PARTITIONS,
    PRODUCERS,
    RULE_KEY,
    RULES,
    U64,
    TruncationRule,
    number_in,
)


def move_start(rows: RowWriter, truncation: Truncation) -> None:
    """Move the start of a log, if the partition is still there."""
    key = NUMBER.pack(truncation.number)
    value = rows.get(PARTITIONS, key)
    if value is None or truncation.log_start_offset is None:
        return
    row = msgspec.structs.replace(
        msgspec.msgpack.decode(value, type=PartitionRow),
        log_start_offset=truncation.log_start_offset,
    )
    rows.put(PARTITIONS, key, msgspec.msgpack.encode(row))
    if truncation.producers:
        rows.put(PRODUCERS, key, truncation.producers)
    else:
        rows.delete(PRODUCERS, key)


def add_rule(rows: RowWriter, number: int, through: int, offset: int) -> None:
    """Add a truncation rule, and remove the older rules that it covers."""
    for rule in rules_of(rows, number):
        if rule.through_segment_id <= through and rule.offset >= offset:
            rows.delete(RULES, RULE_KEY.pack(number, rule.through_segment_id))
        elif rule.through_segment_id == through:
            offset = min(offset, rule.offset)
    rows.put(RULES, RULE_KEY.pack(number, through), U64.pack(offset))


def rules_of(rows: RowReader, number: int) -> list[TruncationRule]:
    found = []
    for key, value in rows.rows(RULES, RULE_KEY.pack(number, 0)):
        owner, through = RULE_KEY.unpack(key)
        if owner != number:
            break
        found.append(TruncationRule(through, number_in(U64, value)))
    return found
