"""Snapshot files: whole or refused (P1, P11)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.quorum.raft.storage.snapshot_file import (
    IncomingSnapshot,
    SnapshotCorrupt,
    SnapshotError,
    SnapshotPosition,
    read_chunks,
    read_position,
    write_snapshot,
)

POSITION = SnapshotPosition(1_234, 7)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.snapshot"


@pytest.mark.parametrize("chunks", [[], [b"one"], [b"a" * 70_000, b"b"]])
def test_what_was_written_is_read(path: Path, chunks: list[bytes]) -> None:
    write_snapshot(path, POSITION, chunks)
    assert read_position(path) == POSITION
    assert list(read_chunks(path)) == chunks


def test_p11_every_truncation_is_refused(path: Path) -> None:
    write_snapshot(path, POSITION, [b"some", b"state"])
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(SnapshotCorrupt):
            list(read_chunks(path))


@given(data=st.data())
def test_p11_every_flipped_bit_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("snapshot") / "metadata.snapshot"
    write_snapshot(path, POSITION, [b"some", b"state"])
    damaged = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(damaged)
    with pytest.raises(SnapshotCorrupt):
        list(read_chunks(path))


def test_p1_failed_writing_leaves_the_older_snapshot(path: Path) -> None:
    write_snapshot(path, POSITION, [b"older"])

    def failing() -> object:
        yield b"newer"
        raise OSError("disk full")

    with pytest.raises(SnapshotError, match=r"metadata\.snapshot\.writing: disk full\. Free space"):
        write_snapshot(path, SnapshotPosition(2_000, 8), failing())  # type: ignore[arg-type]
    assert list(read_chunks(path)) == [b"older"]


def test_pieces_without_their_beginning_are_ignored(path: Path) -> None:
    incoming = IncomingSnapshot(path)
    assert not incoming.take(b"middle", is_first=False, is_last=False)
    assert not incoming.take(b"end", is_first=False, is_last=True)
    assert not path.exists()
    assert not incoming.take(b"one", is_first=True, is_last=False)
    assert not incoming.take(b"one", is_first=True, is_last=False)
    assert incoming.take(b"two", is_first=False, is_last=True)
    assert path.read_bytes() == b"onetwo"
