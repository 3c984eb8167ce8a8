"""The disk on which power losses are replayed: what it may lose, and what it may not."""

import random
from pathlib import Path

from tests.support.power_loss.disk import RecordedDisk
from tests.support.power_loss.events import Event, Kind
from tests.support.power_loss.pages import PAGE_BYTES, RecordedFile

PAGE = b"a" * PAGE_BYTES
OTHER = b"b" * PAGE_BYTES


def left(file: RecordedFile, survival: float) -> set[bytes]:
    """Everything that many power losses leave."""
    return {file.crashed(survival, random.Random(seed)) for seed in range(200)}


def written(file: RecordedFile, operation: int, offset: int, data: bytes) -> None:
    file.begin_write(operation, offset, data)
    file.end_write(operation)


def event(kind: Kind, text: str = "", *, file: int = 1, created: bool = False) -> Event:
    return Event(kind, 1, file, 0, created, False, text.encode())


def test_what_was_synced_stays_and_the_rest_is_lost_page_by_page() -> None:
    file = RecordedFile()
    written(file, 1, 0, PAGE)
    file.make_durable(file.complete())
    written(file, 2, PAGE_BYTES, OTHER)
    written(file, 3, 2 * PAGE_BYTES, OTHER)
    assert left(file, 0.0) == {PAGE}
    assert left(file, 1.0) == {PAGE + OTHER + OTHER} == {file.visible()}
    some = left(file, 0.5)
    assert {PAGE, PAGE + OTHER, PAGE + bytes(PAGE_BYTES) + OTHER, PAGE + OTHER + OTHER} <= some
    assert all(one.startswith(PAGE) for one in some)


def test_a_sync_covers_the_writes_that_had_ended_when_it_began() -> None:
    file = RecordedFile()
    written(file, 1, 0, PAGE)
    file.begin_write(2, PAGE_BYTES, OTHER)
    covered = file.complete()
    file.end_write(2)
    file.make_durable(covered)
    assert left(file, 0.0) == {PAGE}


def test_a_page_may_be_left_as_it_was_between_two_writes_or_torn() -> None:
    file = RecordedFile(PAGE)
    written(file, 1, 0, OTHER)
    written(file, 2, 0, b"c" * PAGE_BYTES)
    some = left(file, 0.5)
    assert {PAGE, OTHER, b"c" * PAGE_BYTES} <= some
    assert any(len(set(one)) == 2 for one in some)


def test_a_newer_content_that_is_durable_is_not_undone_by_an_older_one() -> None:
    file = RecordedFile()
    written(file, 1, 0, PAGE * 2)
    covered = file.complete()
    written(file, 2, 100, b"meta")
    file.make_durable([2])
    file.make_durable(covered)
    meta = PAGE[:100] + b"meta" + PAGE[104:]
    assert left(file, 0.0) == {meta + PAGE}


def test_a_killed_writer_leaves_what_it_left() -> None:
    file = RecordedFile(PAGE)
    file.begin_write(1, 0, OTHER * 2)
    cut_short = OTHER[:10] + PAGE[10:]
    file.settle(cut_short)
    assert file.visible() == cut_short
    assert left(file, 0.0) == {PAGE}


def test_names_that_were_not_synced_may_be_lost_but_not_one_without_what_it_needs(
    tmp_path: Path,
) -> None:
    disk = RecordedDisk()
    disk.replay(event(Kind.OPEN, file=9))
    disk.replay(event(Kind.OPEN, "kept", created=True))
    disk.replay(event(Kind.SYNC, file=9))
    disk.replay(event(Kind.SYNCED, file=9))
    disk.replay(event(Kind.OPEN, "new.creating", created=True))
    disk.replay(event(Kind.RENAME, "new.creating\nnew"))
    disk.replay(event(Kind.UNLINK, "kept"))
    found = set()
    for seed in range(200):
        into = tmp_path / str(seed)
        into.mkdir()
        disk.lose_power(into, random.Random(seed))
        found.add(tuple(sorted(p.name for p in into.iterdir() if not p.name.endswith("-lock"))))
    assert found == {
        ("kept",),
        (),
        ("kept", "new.creating"),
        ("new.creating",),
        ("kept", "new"),
        ("new",),
    }
