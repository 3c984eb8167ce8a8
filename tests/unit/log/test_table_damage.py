"""Damage to ``store.mdb`` is refused with the file and advice, and never read as other contents."""

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import cast

import lmdb
import msgspec
import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.checkpoints import checked_rows
from quorate.broker.log.checkpoints.partition_row import NO_SEGMENT, PartitionRow, Truncation
from quorate.broker.log.checkpoints.store_table import StoreTable
from quorate.broker.log.checkpoints.table_rows import DATABASES, StoreRun
from quorate.broker.log.segments.segment_contents import FooterPlace
from quorate.common.files.lmdb_check import LmdbFile
from quorate_proto.v1 import errors_pb2
from tests.support.own_interpreter import run_in_own_interpreter, tell

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

SEED = 16
FLIPS = 300
PAGE = 4096


def rows(count: int) -> list[PartitionRow]:
    chosen = random.Random(SEED)
    return [
        PartitionRow(number, chosen.randbytes(16), number % 7, f"topic-{number // 7}", 0, number)
        for number in range(count)
    ]


def fill(table: StoreTable) -> None:
    """Write rows of every kind, and some over again."""
    table.add_partitions(rows(150))
    table.record_segments({1: True, 2: True, 3: False})
    table.record_footer(1, FooterPlace(1 << 20, 4096, 0xDEADBEEF))
    table.record_truncations(
        [Truncation(4, 70, 0), Truncation(5, 0, NO_SEGMENT, 30, b"producers")], 2
    )
    table.write_high_watermarks({number: number * 1000 for number in range(150)})
    table.write_cleaned_offsets({3: 10})
    table.remove_partitions([7, 8])
    table.record_run(StoreRun("boot", closed=True))
    table.change_history(
        lambda known: known.with_incarnation(b"i" * 16).with_lost([(b"t" * 16, 3)])
    )


def contents(table: StoreTable) -> tuple[object, ...]:
    return (
        table.partitions(),
        table.next_number(),
        table.truncation_rules(),
        table.producers(),
        table.segments(),
        table.footers(),
        table.last_segment_id(),
        table.high_watermarks(),
        table.cleaned_offsets(),
        table.last_run(),
        table.loss_is_unhandled(),
        table.mark(),
        table.history(),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a table with rows of every kind."""
    table = StoreTable.open(tmp_path)
    fill(table)
    table.close()
    return tmp_path / "store.mdb"


def reopened(path: Path) -> tuple[object, ...]:
    table = StoreTable.open(path.parent)
    found = contents(table)
    table.close()
    return found


def refused(path: Path) -> str:
    with pytest.raises(KafkaError) as error:
        StoreTable.open(path.parent)
    assert error.value.code == errors_pb2.KAFKA_STORAGE_ERROR
    assert str(path) in error.value.message
    return error.value.message


def change(path: Path, database: bytes, work: Callable[[lmdb.Transaction], object]) -> None:
    """Change rows behind the back of the table."""
    with lmdb.open(str(path), subdir=False, max_dbs=5) as environment:
        handle = environment.open_db(database, create=False)
        with environment.begin(handle, write=True) as transaction:
            work(transaction)


def test_the_mark_grows_with_every_checkpoint_of_high_watermarks(path: Path) -> None:
    table = StoreTable.open(path.parent)
    assert table.mark() == 1
    assert table.write_high_watermarks({3: 1}) == 2
    table.close()
    table = StoreTable.open(path.parent)
    assert table.mark() == 2
    table.close()


def test_a_new_table_has_no_mark(tmp_path: Path) -> None:
    table = StoreTable.open(tmp_path)
    assert table.mark() == 0
    table.close()


def test_no_flipped_bit_is_read_as_other_contents(path: Path) -> None:
    """The outcome is the same contents, or a refusal that names the file; never a signal."""
    run_in_own_interpreter(flip_bits, path)


def flip_bits(path: Path) -> None:
    """Open the table with one flipped bit at a time."""
    expected, data, chosen = reopened(path), path.read_bytes(), random.Random(SEED)
    places, refusals = _used_places(path), 0
    for turn in range(FLIPS):
        changed, where = _with_a_flipped_bit(data, places, chosen)
        path.write_bytes(changed)
        tell(f"seed {SEED}, turn {turn}: {where}")
        try:
            found = reopened(path)
            _write_over(path)
        except KafkaError as error:
            if str(path) not in error.message or "restore" not in error.message:
                raise
            refusals += 1
            continue
        assert found == expected
    assert refusals > FLIPS // 3


def _write_over(path: Path) -> None:
    """Let LMDB use its free pages: a page that is in use must not be among them."""
    table = StoreTable.open(path.parent)
    expected = contents(table)
    for _ in range(2):
        table.write_high_watermarks({number: 5 for number in range(1500)})
        table.write_high_watermarks(cast("dict[int, int]", expected[7]))
    table.close()
    *_, mark, history = expected
    assert reopened(path) == (*expected[:-2], cast("int", mark) + 4, history)


def _used_places(path: Path) -> list[list[int]]:
    """Return, of every page that is in use, the places of its bytes that are not zero."""
    data = path.read_bytes()
    with LmdbFile(path) as file:
        free = set(file.free_pages())
    return [
        [at for at in range(page * PAGE, (page + 1) * PAGE) if data[at]]
        for page in range(len(data) // PAGE)
        if page not in free
    ]


def _with_a_flipped_bit(
    data: bytes, places: list[list[int]], chosen: random.Random
) -> tuple[bytes, str]:
    at, bit = chosen.choice(chosen.choice(places)), chosen.randrange(8)
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed), f"byte {at}, bit {bit}"


def test_a_damaged_row_is_noticed(path: Path) -> None:
    key = struct.pack(">I", 12)

    def damage(transaction: lmdb.Transaction) -> None:
        row = bytearray(bytes(transaction.get(key, b"")))
        row[10] ^= 1
        transaction.put(key, bytes(row))

    change(path, b"partitions", damage)
    assert "damaged" in refused(path)


def test_a_row_is_checked_when_it_is_read(path: Path) -> None:
    table = StoreTable.open(path.parent)
    damaged = bytearray(checked_rows.packed_row(b"partitions", bytes(4), b"some row"))
    damaged[-1] ^= 1
    with table._rows.environment.begin(write=True) as transaction:
        transaction.put(bytes(4), bytes(damaged), db=table._rows._databases[b"partitions"])
    with pytest.raises(KafkaError, match="does not match its checksum"):
        table.partitions()
    table.close()


def _rewritten(path: Path, damage: Callable[[dict[bytes, dict[bytes, bytes]]], None]) -> None:
    """Let ``damage`` change the rows, but keep the sums of what was written and their commit."""
    with LmdbFile(path) as file:
        found = {name: dict(file.rows(name)) for name in DATABASES}
        last = file.newer.transaction
    damage(found)
    path.unlink()
    with lmdb.open(str(path), subdir=False, max_dbs=5) as environment:
        for turn in range(last):
            with environment.begin(write=True) as transaction:
                transaction.put(
                    b"turn", b"%d" % turn, db=environment.open_db(b"store", transaction)
                )
                if turn + 1 < last:
                    continue
                transaction.delete(b"turn", db=environment.open_db(b"store", transaction))
                for name, of in found.items():
                    handle = environment.open_db(name, transaction)
                    for key, row in of.items():
                        transaction.put(key, row, db=handle)


def test_the_same_rows_in_another_file_are_accepted(path: Path) -> None:
    expected = reopened(path)
    _rewritten(path, lambda found: None)
    assert reopened(path) == expected


def test_a_missing_row_is_noticed(path: Path) -> None:
    _rewritten(path, lambda found: found[b"voids"].clear())
    assert "0 rows of 'voids' instead of 1" in refused(path)


def test_an_extra_row_is_noticed(path: Path) -> None:
    def add(found: dict[bytes, dict[bytes, bytes]]) -> None:
        value = msgspec.msgpack.encode(PartitionRow(999, bytes(16), 0, "more"))
        key = struct.pack(">I", 999)
        found[b"partitions"][key] = checked_rows.packed_row(b"partitions", key, value)

    _rewritten(path, add)
    assert "149 rows of 'partitions' instead of 148" in refused(path)


def test_another_row_is_noticed(path: Path) -> None:
    """An older version of a row has a right checksum of its own."""

    def put_back(found: dict[bytes, dict[bytes, bytes]]) -> None:
        key = b"mark"
        found[b"store"][key] = checked_rows.packed_row(b"store", key, struct.pack(">Q", 7))

    _rewritten(path, put_back)
    assert "other rows of 'store' than were written" in refused(path)


def test_rows_of_another_commit_are_noticed(path: Path) -> None:
    def put(transaction: lmdb.Transaction) -> None:
        transaction.put(b"some", b"row")

    change(path, b"store", put)
    assert "it has the rows of commit" in refused(path)


def _write_format_1(path: Path) -> None:
    """Turn the table into one that an older release wrote."""
    with LmdbFile(path) as file:
        found = {name: dict(file.rows(name)) for name in DATABASES}
    path.unlink()
    for key in (b"sums", b"mark", b"history"):
        del found[b"store"][key]
    with (
        lmdb.open(str(path), subdir=False, max_dbs=5) as environment,
        environment.begin(write=True) as transaction,
    ):
        for name, of in found.items():
            handle = environment.open_db(name, transaction)
            for key, row in of.items():
                transaction.put(key, row[4:], db=handle)
        transaction.put(
            b"format", struct.pack(">I", 1), db=environment.open_db(b"store", transaction)
        )


def test_a_table_of_format_1_is_rewritten_once(path: Path) -> None:
    expected = reopened(path)[:-2]
    _write_format_1(path)
    assert reopened(path)[:-2] == expected
    with LmdbFile(path) as file:
        transaction = file.newer.transaction
        store = dict(file.rows(b"store"))
    assert store[b"format"] == struct.pack(">I", 2), (
        "an older release reads the number, and refuses"
    )
    assert reopened(path)[:-2] == expected
    with LmdbFile(path) as file:
        assert file.newer.transaction == transaction


def test_a_crash_while_a_table_is_rewritten_leaves_the_old_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = reopened(path)[:-2]
    _write_format_1(path)

    def crash(sums: checked_rows.Sums, transaction: int) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checked_rows.Sums, "pack", crash)
        with pytest.raises(KeyboardInterrupt):
            StoreTable.open(path.parent)
    with LmdbFile(path) as file:
        assert dict(file.rows(b"store"))[b"format"] == struct.pack(">I", 1)
    assert reopened(path)[:-2] == expected


@pytest.mark.parametrize(
    ("database", "key", "value"),
    [
        (b"partitions", bytes(4), b"no row"),
        (b"partitions", bytes(4), msgspec.msgpack.encode(PartitionRow(1, bytes(16), 0, "t"))),
        (b"partitions", bytes(3), msgspec.msgpack.encode(PartitionRow(1, bytes(16), 0, "t"))),
        (b"voids", bytes(11), bytes(8)),
        (b"voids", bytes(12), bytes(7)),
        (b"producers", bytes(3), b""),
        (b"segments", bytes(8), bytes(2)),
        (b"store", b"run", b"no run"),
        (b"store", b"high-watermarks", bytes(13)),
    ],
)
def test_unreadable_rows_of_format_1_are_refused(
    path: Path, database: bytes, key: bytes, value: bytes
) -> None:
    _write_format_1(path)
    change(path, database, lambda transaction: transaction.put(key, value))
    assert "cannot be read" in refused(path)


@pytest.mark.parametrize("version", [0, 1, 3, 130])
def test_a_damaged_format_is_not_taken_for_another_release(path: Path, version: int) -> None:
    packed = struct.pack(">I", version)
    change(path, b"store", lambda transaction: transaction.put(b"format", packed))
    assert f"it has format {version} and rows of format 2" in refused(path)


def test_a_newer_format_is_left_to_its_release(path: Path) -> None:
    def write(transaction: lmdb.Transaction) -> None:
        transaction.put(b"format", struct.pack(">I", 3))
        transaction.put(b"sums", checked_rows.Sums(DATABASES, 3).pack(transaction.id()))

    change(path, b"store", write)
    assert "start the release that wrote it" in refused(path)


def test_a_file_without_format_is_refused(path: Path) -> None:
    change(path, b"store", lambda transaction: transaction.delete(b"format"))
    assert "does not say its format" in refused(path)
