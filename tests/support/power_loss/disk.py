"""Replays what was recorded on a disk of its own, which can lose its power at any time.

Of a folder any of the changes since its last sync may be missing after that; one is not there
without those before it that had to do with its names.
"""

import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.support.power_loss.events import LOCK_SUFFIX, Event, Kind, is_recorded
from tests.support.power_loss.pages import RecordedFile

_SURVIVALS: Final = (0.0, 1.0, 0.02, 0.98, 0.2, 0.5, 0.8)
"""The chances that an unsynced change is there, in one crash or another."""


class RecordedFolder:
    """Names, as they are, as they were when last synced, and the changes between."""

    def __init__(self) -> None:
        self.names: dict[str, RecordedFile | RecordedFolder] = {}
        self._durable: dict[str, RecordedFile | RecordedFolder] = {}
        self._changes: dict[int, Mapping[str, RecordedFile | RecordedFolder | None]] = {}
        self._count = 0

    def change(self, names: "Mapping[str, RecordedFile | RecordedFolder | None]") -> None:
        """One operation: what each of ``names`` stands for after it; None: it is gone."""
        self._count += 1
        self._changes[self._count] = names
        _rename(self.names, names)

    def complete(self) -> list[int]:
        """The changes that a sync which begins now makes durable."""
        return list(self._changes)

    def make_durable(self, operations: Iterable[int]) -> None:
        """These changes are on disk."""
        for operation in operations:
            if operation in self._changes:
                _rename(self._durable, self._changes.pop(operation))

    def crashed(
        self, survival: float, chance: random.Random
    ) -> "dict[str, RecordedFile | RecordedFolder]":
        """Return what is left when the power goes."""
        names = dict(self._durable)
        lost: set[str] = set()
        for change in self._changes.values():
            if lost.isdisjoint(change) and chance.random() < survival:
                _rename(names, change)
            else:
                lost.update(change)
        return names


class RecordedDisk:
    """The state of the recorded folder, event by event."""

    def __init__(self, before: Path | None = None) -> None:
        """``before``: what the recorded folder was like, all of it durable; None: empty."""
        self.root = RecordedFolder() if before is None else _durable_folder(before)
        self._open: dict[int, RecordedFile | RecordedFolder] = {}
        self._syncs: dict[int, list[int]] = {}
        self._writes_through: set[int] = set()
        self._truncations = 0

    def replay(self, event: Event) -> None:
        """Do what was recorded next."""
        match event.kind:
            case Kind.OPEN:
                self._opened(event)
            case Kind.SYNC:
                self._syncs[event.operation] = self._open[event.file].complete()
            case Kind.SYNCED:
                assert event.offset == 0, "a sync failed while it was recorded"
                self._open[event.file].make_durable(self._syncs.pop(event.operation))
            case Kind.WRITE | Kind.WRITTEN | Kind.TRUNCATE:
                self._changed(event)
            case Kind.RENAME | Kind.UNLINK | Kind.MAKE_FOLDER:
                self._named(event)
            case Kind.FOREIGN:
                raise AssertionError(f"what a power loss does to {event.text} is not known here")

    def killed(self, actual: Path) -> None:
        """The recorded process was killed; it left its folder as ``actual``.

        The last thing that a thread of it did may have been done and not been recorded.
        """
        _settle(self.root, actual)
        self._syncs.clear()
        self._writes_through.clear()

    def files(self) -> "Iterator[tuple[Path, RecordedFile]]":
        """Every file, by its path."""
        yield from _files_below(self.root, Path())

    def lose_power(self, into: Path, chance: random.Random) -> None:
        """Lay down in ``into``, an empty folder, what is left of the recorded one."""
        _lay_down(self.root, into, chance.choice(_SURVIVALS), chance)

    def _opened(self, event: Event) -> None:
        if event.text == "":
            self._open[event.file] = self.root
            return
        folder, name = self._place(event.text)
        if event.created:
            folder.change({name: RecordedFile()})
        self._open[event.file] = folder.names[name]

    def _changed(self, event: Event) -> None:
        found = self._open[event.file]
        assert isinstance(found, RecordedFile)
        if event.kind is Kind.WRITE:
            found.begin_write(event.operation, event.offset, event.data)
            if event.write_through:
                self._writes_through.add(event.operation)
        elif event.kind is Kind.WRITTEN:
            assert event.offset >= 0, "a write failed while it was recorded"
            found.end_write(event.operation)
            if event.operation in self._writes_through:
                self._writes_through.remove(event.operation)
                found.make_durable([event.operation])
        else:
            self._truncations += 1
            found.truncate(-self._truncations, event.offset)

    def _named(self, event: Event) -> None:
        if event.kind is Kind.RENAME:
            old, new = event.text.split("\n")
            folder, name = self._place(old)
            new_folder, new_name = self._place(new)
            assert folder is new_folder, f"{old} was moved to another folder"
            folder.change({new_name: folder.names[name], name: None})
            return
        folder, name = self._place(event.text)
        folder.change({name: RecordedFolder() if event.kind is Kind.MAKE_FOLDER else None})

    def _place(self, path: str) -> tuple[RecordedFolder, str]:
        *above, name = path.split("/")
        folder = self.root
        for each in above:
            found = folder.names[each]
            assert isinstance(found, RecordedFolder)
            folder = found
        return folder, name


def _durable_folder(path: Path) -> RecordedFolder:
    folder = RecordedFolder()
    for each in filter(is_recorded, path.iterdir()):
        what = _durable_folder(each) if each.is_dir() else RecordedFile(each.read_bytes())
        folder.change({each.name: what})
    folder.make_durable(folder.complete())
    return folder


def _rename(
    names: dict[str, RecordedFile | RecordedFolder],
    changed: Mapping[str, RecordedFile | RecordedFolder | None],
) -> None:
    for name, what in changed.items():
        if what is None:
            names.pop(name, None)
        else:
            names[name] = what


def _files_below(folder: RecordedFolder, path: Path) -> "Iterator[tuple[Path, RecordedFile]]":
    for name, found in folder.names.items():
        if isinstance(found, RecordedFolder):
            yield from _files_below(found, path / name)
        else:
            yield path / name, found


def _settle(folder: RecordedFolder, actual: Path) -> None:
    there = {path.name for path in actual.iterdir() if is_recorded(path)}
    gone, new = folder.names.keys() - there, there - folder.names.keys()
    if len(gone) == len(new) == 1:
        (old_name,), (new_name,) = gone, new
        folder.change({new_name: folder.names[old_name], old_name: None})
    else:
        for name in gone:
            folder.change({name: None})
        for name in new:
            created = RecordedFile()
            created.begin_write(0, 0, (actual / name).read_bytes())
            folder.change({name: created})
    for name, found in folder.names.items():
        if isinstance(found, RecordedFolder):
            _settle(found, actual / name)
        elif found.is_being_written:
            found.settle((actual / name).read_bytes())


def _lay_down(folder: RecordedFolder, into: Path, survival: float, chance: random.Random) -> None:
    for name, found in folder.crashed(survival, chance).items():
        if isinstance(found, RecordedFolder):
            (into / name).mkdir()
            _lay_down(found, into / name, survival, chance)
            continue
        (into / name).write_bytes(found.crashed(survival, chance))
        if chance.random() < survival:
            # LMDB's: whatever is in it, the first process that opens the file begins it anew.
            (into / (name + LOCK_SUFFIX)).write_bytes(chance.randbytes(8192))
