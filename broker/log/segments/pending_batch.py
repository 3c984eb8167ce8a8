"""A batch between its append and its segment."""

import msgspec

from quorate.broker.log.options import Records


class PendingBatch(msgspec.Struct, eq=False, gc=False):
    """A batch from its append until it leaves the memory tail.

    ``records`` are the bytes that are passed to LMDB, and ``size`` is their number. This is a
    struct because one is made for every appended batch.
    """

    number: int
    """The local number of the batch's partition."""
    base_offset: int
    last_offset: int
    records: Records
    leader_epoch: int
    epoch_start_offset: int
    """The offset where the leader epoch of the batch begins. It is written together with the first
    batch of an epoch."""
    size: int
    flushed: bool = False
    """Whether the batch is in a segment."""
    dropped: bool = False
    """Whether the batch was truncated or deleted before it was flushed."""
