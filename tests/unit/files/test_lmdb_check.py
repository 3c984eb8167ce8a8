"""An LMDB file is checked without LMDB, page by page, before LMDB opens it."""

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from quorate.common.files.lmdb_check import LmdbDamaged, LmdbFile, check_lmdb_file
from tests.support.own_interpreter import run_in_own_interpreter, tell

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

PAGE = 4096
TRANSACTION_AT = 144
SEED = 16
FLIPS = 400

Rows = dict[bytes, list[tuple[bytes, bytes]]]


def opened(path: Path) -> lmdb.Environment:
    return lmdb.open(str(path), subdir=False, max_dbs=2, map_size=64 << 20, sync=False)


def contents(path: Path) -> Rows:
    """Return all rows as LMDB reads them."""
    environment = opened(path)
    found = {}
    for name in (b"large", b"small"):
        database = environment.open_db(name, create=False)
        with environment.begin(database) as transaction:
            found[name] = [(bytes(key), bytes(value)) for key, value in transaction.cursor()]
    environment.close()
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file with a past: two databases, branch and overflow pages, and free pages."""
    path = tmp_path / "some.mdb"
    environment = opened(path)
    small, large = environment.open_db(b"small"), environment.open_db(b"large")
    chosen = random.Random(SEED)
    for turn in range(12):
        with environment.begin(write=True) as transaction:
            for number in range(200):
                key = struct.pack(">II", chosen.randrange(1 << 20), number)
                transaction.put(key, chosen.randbytes(40), db=small)
            transaction.put(b"%d" % turn, chosen.randbytes(chosen.randrange(30_000)), db=large)
            with transaction.cursor(small) as cursor:
                cursor.set_range(struct.pack(">I", chosen.randrange(1 << 20)))
                for _ in range(100):
                    cursor.delete()
    environment.close()
    return path


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_what_lmdb_wrote_passes_and_its_rows_are_read_without_lmdb(path: Path) -> None:
    root = check_lmdb_file(path)
    assert root.main.entries == 2
    with LmdbFile(path) as file:
        read = {name: list(file.rows(name)) for name in (b"large", b"small")}
        assert list(file.rows(b"unknown")) == []
    assert read == contents(path)
    assert min(map(len, read.values())) > 10


def test_a_file_passes_after_every_transaction(tmp_path: Path) -> None:
    """The free list and the trees stay as the check expects, whatever is put and deleted."""
    path, chosen = tmp_path / "busy.mdb", random.Random(SEED)
    environment = opened(path)
    database = environment.open_db(b"rows")
    for turn in range(150):
        with environment.begin(database, write=True) as transaction:
            for _ in range(chosen.choice([1, 5, 60])):
                if chosen.random() < 0.6:
                    size = chosen.choice([0, 7, 100, 2_030, 9_000])
                    transaction.put(chosen.randbytes(chosen.choice([1, 9])), bytes(size))
                else:
                    with transaction.cursor() as cursor:
                        for _ in range(cursor.set_range(chosen.randbytes(1)) * 20):
                            cursor.delete()
            if turn % 10 == 0:
                transaction.abort()
        check_lmdb_file(path)
    environment.close()


def test_appended_rows_pass(tmp_path: Path) -> None:
    """LMDB splits pages in another way when keys only rise."""
    path = tmp_path / "appended.mdb"
    environment = opened(path)
    for turn in range(40):
        with environment.begin(write=True) as transaction:
            for number in range(100):
                key = struct.pack(">Q", turn * 100 + number)
                transaction.put(key, bytes(number), append=True)
    environment.close()
    check_lmdb_file(path)


def _set_transaction(path: Path, change: Callable[[int], int]) -> None:
    """Change the number of the newer root."""
    with LmdbFile(path) as file:
        newer = file.newer.transaction
    at = newer % 2 * PAGE + TRANSACTION_AT
    overwrite(path, at, struct.pack("=Q", change(newer)))


@pytest.mark.parametrize("by", [1, 2, -1, 1 << 40])
def test_a_root_with_another_number_is_noticed(path: Path, by: int) -> None:
    _set_transaction(path, lambda newer: newer + by)
    with pytest.raises(LmdbDamaged, match="its two roots are of commits"):
        check_lmdb_file(path)


def test_a_newer_root_that_passes_for_the_oldest_is_noticed_by_its_free_pages(path: Path) -> None:
    """The two numbers still follow each other, and LMDB would go on from the older commit."""
    _set_transaction(path, lambda newer: newer - 2)
    with pytest.raises(LmdbDamaged, match="has pages freed by commit"):
        check_lmdb_file(path)


@pytest.mark.parametrize("size", [0, 100, PAGE + 100, 10 * PAGE])
def test_a_truncated_file_is_noticed(path: Path, size: int) -> None:
    os.truncate(path, size)
    with pytest.raises(LmdbDamaged, match="truncated"):
        check_lmdb_file(path)


def test_the_file_is_named(path: Path) -> None:
    overwrite(path, 2 * PAGE, bytes(200 * PAGE))
    with pytest.raises(LmdbDamaged) as refused:
        check_lmdb_file(path)
    assert str(path) in str(refused.value)
    assert refused.value.path == path
    assert refused.value.problem


def _free_list_at(path: Path) -> int:
    """Return the position of the number of the first page in the list of free pages."""
    with LmdbFile(path) as file:
        page = file.newer.free.root * PAGE
        data = path.read_bytes()[page : page + PAGE]
        (node,) = struct.unpack_from("=H", data, 16)
        return page + int(node) + 8 + 8 + 8


def test_a_free_page_that_is_in_use_is_noticed(path: Path) -> None:
    """LMDB would write over it."""
    with LmdbFile(path) as file:
        used = file.newer.main.root
    overwrite(path, _free_list_at(path), struct.pack("=Q", used))
    with pytest.raises(LmdbDamaged, match="is free and used"):
        check_lmdb_file(path)


def test_a_free_page_that_is_not_there_is_noticed(path: Path) -> None:
    overwrite(path, _free_list_at(path), struct.pack("=Q", 1 << 33))
    with pytest.raises(LmdbDamaged, match="free page"):
        check_lmdb_file(path)


def _add(path: Path, at: int, form: str, by: int) -> None:
    """Add to a number in the file."""
    data = path.read_bytes()
    overwrite(path, at, struct.pack(form, struct.unpack_from(form, data, at)[0] + by))


def _pages(path: Path, kind: int) -> list[int]:
    """Return the positions of used pages of a kind."""
    data = path.read_bytes()
    with LmdbFile(path) as file:
        free = set(file.free_pages())
        trees = [file.newer.main.root, file.newer.free.root]
    return [
        at
        for at in range(2 * PAGE, len(data), PAGE)
        if struct.unpack_from("=QHH", data, at) == (at // PAGE, 0, kind)
        and at // PAGE not in free | set(trees)
    ]


def _first_node(path: Path, page: int) -> int:
    return page + int(struct.unpack_from("=H", path.read_bytes(), page + 16)[0])


def _main_tree_at(path: Path) -> int:
    """Return the position of the newer root's tree of the contents."""
    with LmdbFile(path) as file:
        return file.newer.transaction % 2 * PAGE + 16 + 24 + 48


LEAF, BRANCH, OVERFLOW = 2, 1, 4
DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "number of entries": (lambda path: _add(path, _main_tree_at(path) + 32, "=Q", 1), "entries"),
    "kind of tree": (lambda path: _add(path, _main_tree_at(path) + 4, "=H", 4), "kind 0x4"),
    "depth": (lambda path: _add(path, _main_tree_at(path) + 6, "=H", 1), "of kind"),
    "last page": (lambda path: _add(path, _main_tree_at(path) + 48, "=Q", 1 << 40), "pages"),
    "number of nodes": (lambda path: _add(path, _pages(path, LEAF)[0] + 12, "=H", -2), "no node"),
    "number of page": (lambda path: _add(path, _pages(path, LEAF)[0], "=Q", 1), "says that it is"),
    "size of a value": (
        lambda path: _add(path, _first_node(path, _pages(path, LEAF)[0]), "=I", -4),
        "no node|its nodes end",
    ),
    "kind of a node": (
        lambda path: _add(path, _first_node(path, _pages(path, LEAF)[0]) + 4, "=H", 4),
        "a node is of kind",
    ),
    "key": (
        lambda path: _add(path, _first_node(path, _pages(path, LEAF)[-1]) + 8, "=B", 80),
        "its keys",
    ),
    "child": (
        lambda path: _add(path, _first_node(path, _pages(path, BRANCH)[0]), "=I", 1),
        "its keys|used twice|says that it is",
    ),
    "number of overflow pages": (
        lambda path: _add(path, _pages(path, OVERFLOW)[0] + 12, "=I", 1),
        "used twice|free and used|overflow pages",
    ),
    "number of the overflow page": (
        lambda path: _add(path, _pages(path, OVERFLOW)[0], "=Q", 1),
        "says that it is",
    ),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_to_the_pages_is_noticed(path: Path, what: str) -> None:
    damage, problem = DAMAGES[what]
    damage(path)
    with pytest.raises(LmdbDamaged, match=problem):
        check_lmdb_file(path)


def test_no_flipped_bit_that_passes_ends_lmdb_or_loses_a_row(path: Path) -> None:
    """What passes differs from the original in the bytes of keys and values alone, and LMDB can
    read and write it."""
    run_in_own_interpreter(flip_bits, path)


def flip_bits(path: Path) -> None:
    """Check the file with one flipped bit at a time, and open it where it passes."""
    data, expected, chosen = path.read_bytes(), contents(path), random.Random(SEED)
    places = [place for place in range(len(data)) if data[place]]
    for turn in range(FLIPS):
        changed = bytearray(data)
        place, bit = chosen.choice(places), chosen.randrange(8)
        changed[place] ^= 1 << bit
        path.write_bytes(changed)
        tell(f"seed {SEED}, turn {turn}: bit {bit} of byte {place}")
        try:
            check_lmdb_file(path)
        except LmdbDamaged:
            continue
        assert _is_like(contents(path), expected)
        _write(path)


def _is_like(found: Rows, expected: Rows) -> bool:
    """Return whether at most one key or value differs."""
    pairs = [
        (one, other)
        for name in expected
        for one, other in zip(found[name], expected[name], strict=True)
    ]
    return sum(one != other for one, other in pairs) <= 1


def _write(path: Path) -> None:
    environment = opened(path)
    small = environment.open_db(b"small", create=False)
    with environment.begin(small, write=True) as transaction:
        for number in range(50):
            transaction.put(struct.pack(">Q", number), bytes(500))
    environment.close()
    check_lmdb_file(path)
