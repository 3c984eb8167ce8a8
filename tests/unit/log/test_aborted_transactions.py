"""Which aborted transactions a reader has to hear of, in whatever order they overlapped."""

from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.log.state.aborted_transactions import AbortedTransaction, AbortedTransactions

_STEPS = st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=60)
"""(producer, whether its transaction ends): at each offset one of them writes a batch."""


def history(steps: list[tuple[int, bool]]) -> tuple[AbortedTransactions, list[AbortedTransaction]]:
    """Every transaction is aborted: packed, and as a plain list."""
    packed, plain = AbortedTransactions(), []
    begun: dict[int, int] = {}
    for offset, (producer_id, ends) in enumerate(steps):
        if not ends:
            begun.setdefault(producer_id, offset)
        elif producer_id in begun:
            one = AbortedTransaction(producer_id, begun.pop(producer_id), offset)
            packed.add(one, min(begun.values(), default=offset + 1))
            plain.append(one)
    return packed, plain


@given(steps=_STEPS, start=st.integers(0, 60), size=st.integers(0, 60))
def test_kip_98_all_that_may_have_records_in_a_range_are_found(
    steps: list[tuple[int, bool]], start: int, size: int
) -> None:
    packed, plain = history(steps)
    end = start + size
    assert packed.overlapping(start, end) == [
        one for one in plain if one.last_offset >= start and one.first_offset < end
    ]


@given(steps=_STEPS, offset=st.integers(0, 60))
def test_what_ended_before_the_log_begins_or_beyond_its_end_is_forgotten(
    steps: list[tuple[int, bool]], offset: int
) -> None:
    packed, plain = history(steps)
    packed.drop_before(offset)
    assert packed.overlapping(0, 60) == [one for one in plain if one.last_offset >= offset]
    packed, _ = history(steps)
    packed.truncate(offset)
    assert packed.overlapping(0, 60) == [one for one in plain if one.last_offset < offset]
    assert len(packed) == len([one for one in plain if one.last_offset < offset])
