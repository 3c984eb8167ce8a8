"""Packed partitions say what a tuple of leaves would say, in a quarter of the memory."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.common.types import BrokerId, ControllerEpoch, LeaderEpoch
from quorate.metadata_log.packed_partitions import (
    BLOCK,
    Columns,
    PackedPartitions,
    Packer,
    columns_of,
    leaf_of,
    leaves_of,
    unpack,
)
from quorate.metadata_log.partitions import Partition

INT32 = st.one_of(st.integers(-2, 40), st.integers(-(1 << 31), (1 << 31) - 1))
INT64 = st.one_of(st.integers(0, 40), st.integers(-(1 << 63), (1 << 63) - 1))
BROKERS = st.lists(
    st.one_of(INT32, st.sampled_from([-1, -(1 << 15), (1 << 15) - 1, 1 << 15])), max_size=5
).map(tuple)
LEAVES = st.builds(
    Partition,
    replicas=BROKERS,
    leader=INT32,
    leader_epoch=INT32,
    isr=BROKERS,
    controller_id=INT32,
    controller_epoch=INT32,
    version=INT64,
)


def leaf(number: int) -> Partition:
    replicas = tuple(BrokerId((number + place) % 12) for place in range(3))
    return Partition(
        replicas, replicas[0], LeaderEpoch(number % 3), replicas, BrokerId(1), ControllerEpoch(1)
    )


def block_of(leaves: list[Partition]) -> bytes:
    columns = columns_of(leaves)
    return Packer(columns.lists).pack(columns)


def packed(partitions: PackedPartitions) -> PackedPartitions:
    """The same ones, after a snapshot."""
    for _ in partitions.blocks():
        pass
    return partitions


@given(st.lists(LEAVES, max_size=20))
def test_whatever_the_rules_let_in_survives_a_block(leaves: list[Partition]) -> None:
    block = block_of(leaves)
    assert leaves_of(unpack(block)) == leaves
    assert [leaf_of(block, place) for place in range(len(leaves))] == leaves


@given(st.lists(LEAVES, max_size=12), st.data())
def test_they_read_as_a_tuple_before_and_after_a_snapshot(
    leaves: list[Partition], data: st.DataObject
) -> None:
    model = list(leaves)
    partitions = PackedPartitions.of(leaves)
    for _ in range(3):
        if model:
            places = st.dictionaries(st.integers(0, len(model) - 1), LEAVES, max_size=3)
            changes = data.draw(places)
            partitions = partitions.replaced(changes)
            for place, changed in changes.items():
                model[place] = changed
        assert (len(partitions), tuple(partitions)) == (len(model), tuple(model))
        assert partitions == tuple(model) == partitions
        assert [partitions[place] for place in range(-len(model), len(model))] == model * 2
        assert partitions[1:] == tuple(model[1:])
        packed(partitions)
    with pytest.raises(IndexError):
        partitions[len(model)]
    with pytest.raises(IndexError):
        partitions[-len(model) - 1]


def test_partitions_of_many_blocks() -> None:
    leaves = [leaf(number) for number in range(2 * BLOCK + 7)]
    partitions = packed(PackedPartitions.of(leaves))
    places = [0, BLOCK - 1, BLOCK, 2 * BLOCK, 2 * BLOCK + 6]
    changed = partitions.replaced({place: leaf(place + 1) for place in places})
    for _ in range(2):
        assert [changed[place] for place in places] == [leaf(place + 1) for place in places]
        assert sum(a != b for a, b in zip(changed, leaves, strict=True)) == len(places)
        packed(changed)
    assert tuple(partitions) == tuple(leaves), "a change shows in what it was made from"


def test_a_leaf_that_is_read_again_is_not_made_again() -> None:
    partitions = packed(PackedPartitions.of([leaf(number) for number in range(3)]))
    assert partitions[1] is partitions[1]
    assert [partitions[0], partitions[1], partitions[0]] == [leaf(0), leaf(1), leaf(0)]
    assert partitions.replaced({1: leaf(7)})[1] == leaf(7)


def test_blocks_of_any_sizes_are_taken() -> None:
    leaves = [leaf(number) for number in range(10)]
    blocks = [block_of(leaves[:3]), block_of(leaves[3:])]
    assert PackedPartitions.of_blocks(blocks) == tuple(leaves)
    assert PackedPartitions.of_blocks(blocks)[4] == leaves[4]


def test_a_snapshot_that_is_given_up_changes_nothing() -> None:
    partitions = PackedPartitions.of([leaf(number) for number in range(BLOCK + 1)])
    changed = partitions.replaced({0: leaf(5), BLOCK: leaf(6)})
    next(changed.blocks())
    assert (changed[0], changed[BLOCK]) == (leaf(5), leaf(6))


def test_a_partition_takes_24_bytes_at_rest() -> None:
    leaves = [leaf(number) for number in range(BLOCK)]
    assert sys.getsizeof(block_of(leaves)) < 25 * BLOCK


def test_a_packer_forgets_lists_but_not_those_of_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorate.metadata_log.packed_partitions._LISTS_KEPT", 4)
    lists: list[tuple[BrokerId, ...]] = [(BrokerId(number),) for number in range(12)]
    packer = Packer(lists)
    for first in range(0, 12, 3):
        numbers = [first, first + 1, first + 2]
        columns = Columns(lists, numbers, [0] * 3, [0] * 3, numbers, [0] * 3, [0] * 3, [0] * 3)
        found = leaves_of(unpack(packer.pack(columns)))
        assert [one.isr for one in found] == lists[first : first + 3]
        assert sum(map(len, packer._packed.values())) <= 4 + 3
