"""Which batches a reader of offsets needs no byte of."""

from collections.abc import Sequence

import pytest

from quorate.broker.replication.serving.offset_runs import first_run
from tests.support.record_batches import CODECS, CONTROL, TRANSACTIONAL, Record, encode_batch


def plain(start: int, end: int, **how: object) -> bytes:
    """A batch with a record at each offset."""
    return encode_batch([Record(offset) for offset in range(start, end)], **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", CODECS)
def test_batches_without_gaps_are_one_run(codec: str) -> None:
    batches = [plain(5, 9, codec=codec), plain(9, 10, codec=codec), plain(10, 30, codec=codec)]
    assert first_run([b"".join(batches)]) == (5, 30)
    assert first_run(batches) == (5, 30)


@pytest.mark.parametrize(
    "other",
    [
        plain(9, 12, attributes=TRANSACTIONAL, producer=(7, 0, 0)),
        plain(9, 10, attributes=TRANSACTIONAL | CONTROL, producer=(7, 0, -1)),
        encode_batch([Record(9), Record(11)]),
        encode_batch([Record(9)], last_offset=11),
        encode_batch([], base_offset=9, last_offset=11),
        plain(10, 12),
    ],
    ids=["transactional", "control", "gap", "gap at the end", "empty", "gap before"],
)
def test_a_run_ends_before_what_is_not_simply_there(other: bytes) -> None:
    assert first_run([plain(5, 9) + other + plain(12, 13)]) == (5, 9)


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        [b""],
        [encode_batch([Record(9), Record(11)])],
        [plain(3, 5, attributes=TRANSACTIONAL, producer=(7, 0, 0))],
    ],
)
def test_no_run_begins_with_another_batch(chunks: Sequence[bytes]) -> None:
    assert first_run(chunks) is None


def test_a_batch_may_lie_in_two_chunks_and_its_header_ends_the_run() -> None:
    batches = plain(0, 100) + plain(100, 200)
    second = len(plain(0, 100))
    for cut in range(61, len(batches) + 1):
        whole_header = not second < cut < second + 61
        expected = (0, 200) if whole_header else (0, 100)
        assert first_run([batches[:cut], batches[cut:]]) == expected, cut
