"""The rules that the simulator's producers are held to."""

import pytest

from quorate.broker.log.batches.record_batch import read_header
from tests.sim.cluster.producer_order import ProducerOrder
from tests.sim.world import Violation
from tests.support.record_batches import Record, encode_batch

PRODUCER_ID = 1001


def commit(order: ProducerOrder, offset: int, sequence: int, retained_from: int = 0) -> None:
    """Commit the record of this sequence number at ``offset``."""
    value = b"<1.%d>" % sequence
    batch = encode_batch([Record(0, value=value)], producer=(PRODUCER_ID, 0, sequence))
    header = read_header(batch)._replace(base_offset=offset)
    order.committed(header, batch, "a leader", retained_from)


def test_a_record_is_committed_once() -> None:
    order = ProducerOrder("a-0")
    commit(order, 5, 0)

    with pytest.raises(Violation, match="it is there at 5 already"):
        commit(order, 6, 0)


def test_sequences_are_in_order() -> None:
    order = ProducerOrder("a-0")
    commit(order, 5, 0)

    with pytest.raises(Violation, match="expected is 1"):
        commit(order, 6, 2)


def test_a_record_that_is_still_there_is_committed_once_whatever_retention_deleted() -> None:
    order = ProducerOrder("a-0")
    commit(order, 5, 0)

    with pytest.raises(Violation, match="it is there at 5 already"):
        commit(order, 6, 0, retained_from=5)


def test_a_producer_whose_batches_retention_deleted_may_begin_anywhere() -> None:
    order = ProducerOrder("a-0")
    commit(order, 5, 0)

    commit(order, 6, 0, retained_from=6)
    commit(order, 7, 1, retained_from=6)


def test_each_deleted_batch_of_a_producer_may_be_sent_again() -> None:
    order = ProducerOrder("a-0")
    commit(order, 5, 0)
    commit(order, 6, 1)

    commit(order, 9, 0, retained_from=8)
    commit(order, 10, 1, retained_from=8)
