"""A host's disk: what was synced survives a crash, of the rest a part chosen by chance.

The journal's store is all or nothing per write, as an LMDB transaction is. Files are not: of the
bytes written since the last fsync any prefix may survive, and of the names given since the folder
was synced any prefix of the changes, in order.
"""

import io
import os
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from quorate.quorum.raft.storage.journal import (
    JournalCorrupt,
    JournalError,
    JournalWrite,
    Meta,
    RaftEntry,
    Stored,
)
from tests.sim.journal_damage import JournalDamage
from tests.sim.world import World

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

FOLDER: Final = PurePosixPath("/data")


class SimulatedDisk:
    """Belongs to a host and outlives its processes."""

    def __init__(self, world: World, effect: Callable[[str], None]) -> None:
        """``effect`` is called before and after every change; it may end the process."""
        self.world = world
        self.effect = effect
        self.latency_s = 0.0002
        self.stall_s = 0.0
        """The next sync takes so much longer, once."""
        self.damage: JournalDamage | None = None
        """The damage to the journal, from now on."""
        self.meta: Meta | None = None
        self.entries: dict[int, RaftEntry] = {}
        self.files: dict[str, SimulatedFile] = {}
        self._durable_files: dict[str, SimulatedFile] = {}
        self._renames: list[Callable[[dict[str, SimulatedFile]], None]] = []
        self.on_named: Callable[[str], None] = lambda _name: None
        self.on_written: Callable[[JournalWrite], None] = lambda _change: None

    # -- the journal: implements JournalStore ----------------------------------------------------

    def load(self) -> Stored | None:
        if self.meta is None:
            return None
        indexes = sorted(index for index in self.entries if index >= self.meta.first)
        expected = list(range(self.meta.first, self.meta.first + len(indexes)))
        if not indexes or indexes != expected:
            raise JournalCorrupt(f"journal begins at {self.meta.first} and has {indexes[:3]}…")
        if self.damage is not None:
            return self.damage.read(self.meta, [self.entries[index] for index in indexes])
        return Stored(self.meta, [self.entries[index] for index in indexes], min(self.entries))

    def write(self, change: JournalWrite) -> None:
        kind = self.kind_of(change)
        self.effect(f"{kind} write")
        self.take_sync_time()
        self.apply(change)
        self.effect(f"{kind} written")

    def kind_of(self, change: JournalWrite) -> str:
        """Return the kind of effect that writing ``change`` is."""
        if change.meta.first > (1 if self.meta is None else self.meta.first):
            return "journal compaction"
        return "journal" if change.truncate_from is None else "journal truncation"

    def apply(self, change: JournalWrite) -> None:
        """Leave on the disk what ``write`` leaves behind."""
        if change.truncate_from is not None:
            for index in [index for index in self.entries if index >= change.truncate_from]:
                del self.entries[index]
        last = max(self.entries, default=0)
        for entry in change.appended:
            if entry[1] <= last:
                raise JournalError(f"journal refused {entry[1]}, which does not follow {last}")
            last = entry[1]
            self.entries[last] = entry
        if self.entries and min(self.entries) < change.garbage_below:
            for index in [index for index in self.entries if index < change.garbage_below]:
                del self.entries[index]
        self.meta = change.meta
        self.on_written(change)

    def close(self) -> None:
        pass

    def take_sync_time(self) -> None:
        spread = self.world.random.expovariate(1.0)
        self.world.actor_time += self.latency_s * (0.3 + spread) + self.stall_s
        self.stall_s = 0.0

    def holds(self, index: int, term: int) -> bool:
        """The entry is on this disk, or behind a snapshot that is."""
        if self.meta is None:
            return False
        entry = self.entries.get(index)
        return index < self.meta.first or (entry is not None and entry[2] == term)

    @property
    def last_index(self) -> int:
        return max(self.entries, default=0)

    def copied(self) -> "SimulatedDisk":
        """Return another disk with the same content, durable or not."""
        copy = SimulatedDisk(self.world, self.effect)
        copy.latency_s = self.latency_s
        copy.meta, copy.entries = self.meta, dict(self.entries)
        files = {
            id(f): SimulatedFile(bytes(f.data), f.synced) for f in self._durable_files.values()
        }
        copy._durable_files = {name: files[id(f)] for name, f in self._durable_files.items()}
        copy.files = dict(copy._durable_files)
        copy.on_named, copy.on_written = self.on_named, self.on_written
        return copy

    # -- files -----------------------------------------------------------------------------------

    def rename(self, change: Callable[[dict[str, "SimulatedFile"]], None]) -> None:
        self.effect("name")
        change(self.files)
        self._renames.append(change)

    def sync_names(self) -> None:
        self.effect("sync folder")
        self.take_sync_time()
        self._durable_files = dict(self.files)
        self._renames = []

    def crash(self) -> None:
        """Power was lost: forget a part of what was not synced."""
        survives = self.world.random.randint(0, len(self._renames))
        for change in self._renames[:survives]:
            change(self._durable_files)
        self._renames = []
        for file in {id(file): file for file in self._durable_files.values()}.values():
            file.tear(self.world)
        self.files = dict(self._durable_files)


class SimulatedFile:
    """An inode."""

    def __init__(self, data: bytes = b"", synced: int = 0) -> None:
        self.data = bytearray(data)
        self.synced = synced

    def tear(self, world: World) -> None:
        if len(self.data) > self.synced:
            del self.data[world.random.randint(self.synced, len(self.data)) :]
            if world.chance(0.3) and len(self.data) > self.synced:
                self.data[-1] ^= 0x55
        self.synced = len(self.data)


class _Writing(io.RawIOBase):
    """An open file that appends; never buffered, so ``flush`` has nothing to do."""

    def __init__(self, disk: SimulatedDisk, file: SimulatedFile) -> None:
        self._disk = disk
        self._file = file

    def write(self, data: object) -> int:
        self._disk.effect("write")
        written = bytes(cast("Buffer", data))
        self._file.data += written
        return len(written)

    def make_durable(self) -> None:
        self._disk.effect("fsync")
        self._disk.take_sync_time()
        self._file.synced = len(self._file.data)


def make_durable(file: BinaryIO) -> None:
    """Takes the place of the product's fsync of an open file."""
    assert isinstance(file, _Writing)
    file.make_durable()


def sync_file(path: "SimulatedPath") -> None:
    """Takes the place of the product's fsync of a file by its name."""
    path.disk.effect("fsync")
    path.disk.take_sync_time()
    file = path.disk.files[path.name]
    file.synced = len(file.data)


def sync_folder(folder: "SimulatedPath") -> None:
    """Takes the place of the product's fsync of a folder."""
    folder.disk.sync_names()


class SimulatedPath:
    """A path on a simulated disk, with the part of ``pathlib.Path`` that the snapshot store
    uses."""

    def __init__(self, disk: SimulatedDisk, path: PurePosixPath = FOLDER) -> None:
        self.disk = disk
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def __truediv__(self, name: str) -> "SimulatedPath":
        return SimulatedPath(self.disk, self._path / name)

    @property
    def name(self) -> str:
        return self._path.name

    @property
    def parent(self) -> "SimulatedPath":
        return SimulatedPath(self.disk, self._path.parent)

    def with_name(self, name: str) -> "SimulatedPath":
        return SimulatedPath(self.disk, self._path.with_name(name))

    def exists(self) -> bool:
        return self.name in self.disk.files

    def stat(self) -> os.stat_result:
        size = len(self.disk.files[self.name].data)
        return os.stat_result((0o600, 0, 0, 1, 0, 0, size, 0, 0, 0))

    def glob(self, pattern: str) -> Iterator["SimulatedPath"]:
        for name in sorted(self.disk.files):
            if PurePosixPath(name).match(pattern):
                yield self / name

    def open(self, mode: str) -> BinaryIO:
        if mode == "rb":
            if not self.exists():
                raise FileNotFoundError(str(self))
            return io.BytesIO(bytes(self.disk.files[self.name].data))
        file, name = SimulatedFile(), self.name
        self.disk.rename(lambda files: files.__setitem__(name, file))
        return _Writing(self.disk, file)  # type: ignore[return-value]

    def replace(self, target: "SimulatedPath") -> None:
        source, name = self.name, target.name

        def change(files: dict[str, SimulatedFile]) -> None:
            if source in files:
                files[name] = files.pop(source)

        self.disk.rename(change)
        self.disk.on_named(name)

    def unlink(self, *, missing_ok: bool = False) -> None:
        name = self.name
        if name not in self.disk.files and not missing_ok:
            raise FileNotFoundError(str(self))

        def change(files: dict[str, SimulatedFile]) -> None:
            files.pop(name, None)

        self.disk.rename(change)
