"""The demo's accounts: what was acknowledged against what Spark read."""

from array import array

import numpy as np

from quorate.demo.demo_producer import Acknowledgements
from quorate.demo.readback import compare


def offsets(*values: int) -> "array[int]":
    return array("q", values)


def read(*positions: tuple[int, int]) -> tuple["np.ndarray", "np.ndarray"]:
    columns = np.array(positions, dtype=np.int64).reshape(-1, 2)
    return columns[:, 0].astype(np.int32), columns[:, 1]


def test_everything_acknowledged_was_read() -> None:
    acknowledged = {0: offsets(0, 1), 3: offsets(5)}
    assert compare(acknowledged, *read((0, 0), (0, 1), (3, 5))) == (3, 0, 0)


def test_an_offset_of_another_partition_does_not_count() -> None:
    assert compare({0: offsets(7)}, *read((1, 7))) == (0, 1, 1)


def test_what_nobody_acknowledged_is_extra_and_hides_no_loss() -> None:
    assert compare({0: offsets(0, 1)}, *read((0, 0), (0, 2), (0, 3))) == (1, 1, 2)


def test_nothing_read_is_all_lost() -> None:
    assert compare({0: offsets(0, 1)}, *read()) == (0, 2, 0)


class FakeMessage:
    def __init__(self, partition: int, offset: int) -> None:
        self._partition, self._offset = partition, offset

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset


def test_acknowledgements_are_kept_by_partition() -> None:
    acknowledgements = Acknowledgements()
    for partition, offset in ((1, 0), (0, 0), (1, 1)):
        acknowledgements.on_delivery(None, FakeMessage(partition, offset))  # type: ignore[arg-type]
    assert acknowledgements.offsets == {1: offsets(0, 1), 0: offsets(0)}
    assert acknowledgements.count == 3
