"""How much a micro-batch takes: shares of a limit, and whether it is time for a batch at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.common.topic_partition import TopicPartition
from quorate.spark.options.read_options import MicroBatchLimits
from quorate.spark.streaming.micro_batch_planning import is_due, share_out


def by_partition(numbers: list[int]) -> dict[TopicPartition, int]:
    return {TopicPartition("t", partition): number for partition, number in enumerate(numbers)}


@pytest.mark.parametrize(
    ("limit", "sizes", "shares"),
    [
        (10, [100], [10]),
        (10, [90, 10], [9, 1]),
        (10, [50, 50], [5, 5]),
        (30_000, [60_000, 20_000], [22_500, 7_500]),
        # All there is, if that is no more than the limit.
        (10, [4, 6], [4, 6]),
        (10, [3, 0, 2], [3, 0, 2]),
        (10, [0, 0], [0, 0]),
        (10, [], []),
        # What rounding leaves over goes to the largest fractions, not to nobody.
        (4, [5, 5, 5], [2, 1, 1]),
        (7, [10, 20, 30], [1, 2, 4]),
        # Nobody starves, at the expense of the larger.
        (10, [1_000_000, 1], [9, 1]),
        (100, [10**9, *[1] * 99], [1] * 100),
        # A limit below the number of partitions is exceeded.
        (2, [5, 5, 5], [1, 1, 1]),
        (1, [10**18, 1], [1, 1]),
        # Exact where floats are not.
        (10**17 + 1, [10**18, 10**18], [5 * 10**16 + 1, 5 * 10**16]),
    ],
)
def test_shares_are_in_proportion(limit: int, sizes: list[int], shares: list[int]) -> None:
    found = share_out(limit, by_partition(sizes))
    assert found == {p: share for p, share in by_partition(shares).items() if share}


@given(st.integers(1, 500), st.lists(st.one_of(st.integers(0, 9), st.integers(0, 10**6))))
def test_shares_add_up(limit: int, numbers: list[int]) -> None:
    sizes = {p: size for p, size in by_partition(numbers).items() if size}
    shares = share_out(limit, by_partition(numbers))
    assert shares.keys() == sizes.keys()
    assert all(1 <= shares[p] <= size for p, size in sizes.items())
    assert sum(shares.values()) == min(sum(sizes.values()), max(limit, len(sizes)))


@pytest.mark.parametrize(
    ("available", "waited_ms", "due"),
    [
        (0, None, True),  # the first batch
        (100, 0, True),
        (99, 0, False),
        (99, 999, False),
        (1, 1000, True),
    ],
)
def test_a_batch_waits_for_enough_but_not_forever(
    available: int, waited_ms: int | None, due: bool
) -> None:
    limits = MicroBatchLimits(at_least=100, delay_ms_max=1000)
    assert is_due(available, limits, waited_ms) == due
    assert is_due(available, MicroBatchLimits(), waited_ms)
