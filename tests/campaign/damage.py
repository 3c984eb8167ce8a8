"""Kinds of damage to one file of a data folder, chosen at random and carried out."""

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

PAGE_BYTES = 4096

FLIP = "bit flip"
ZERO = "zeroed page"
TRUNCATE = "truncation"
DELETE = "deletion"
OLD_FILE = "old file"
OLD_FOLDER = "old folder"
_WEIGHTS = {FLIP: 50, ZERO: 20, TRUNCATE: 12, DELETE: 4, OLD_FILE: 10, OLD_FOLDER: 4}
KINDS = tuple(_WEIGHTS)

_IN_USE = 0.9
"""The share of bit flips that hit a byte that is not zero."""
_SEARCHED_BYTES = 4_000


class Damage(msgspec.Struct, frozen=True):
    """One damage; ``at`` is the bit, the first byte of the page, or the new size."""

    kind: str
    file: str
    at: int = 0
    generation: int = -1
    """The number of the older copy that is put back."""

    def __str__(self) -> str:
        if self.kind == OLD_FOLDER:
            return f"old copy {self.generation} of the whole folder"
        if self.kind == OLD_FILE:
            return f"old copy {self.generation} of {self.file}"
        if self.kind == FLIP:
            return f"bit {self.at % 8} of byte {self.at // 8} of {self.file} flipped"
        if self.kind == ZERO:
            return f"page of {self.file} at {self.at} zeroed"
        if self.kind == TRUNCATE:
            return f"{self.file} truncated to {self.at} bytes"
        return f"{self.file} deleted"


def choose(
    chance: random.Random, folder: Path, copies: Sequence[Path], kinds: Sequence[str] = KINDS
) -> Damage:
    """Choose a damage that changes something. ``copies`` are older copies of the folder."""
    while True:
        kind = chance.choices(kinds, [_WEIGHTS[kind] for kind in kinds])[0]
        if kind == OLD_FOLDER:
            if copies:
                return Damage(kind, "*", generation=chance.randrange(len(copies)))
            continue
        file = chance.choice(_files(folder))
        found = _of_file(chance, kind, file, copies)
        if found is not None:
            return found


def _files(folder: Path) -> list[Path]:
    """Return the files of the folder. The small files and the tables are as likely as all the
    segments together."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    segments = [path for path in files if path.name.startswith("segment-")]
    others = [path for path in files if not path.name.startswith("segment-")]
    tables = [path for path in others if path.suffix in (".mdb", ".lmdb", ".snapshot", ".backup")]
    repeated = max(2, len(segments) // 2)
    return [*segments, *others, *tables * repeated]


def _of_file(chance: random.Random, kind: str, file: Path, copies: Sequence[Path]) -> Damage | None:
    size = file.stat().st_size
    if kind == DELETE:
        return Damage(kind, file.name)
    if kind == OLD_FILE:
        older = [n for n, copy in enumerate(copies) if _differs(copy / file.name, file)]
        return Damage(kind, file.name, generation=chance.choice(older)) if older else None
    if size == 0:
        return None
    if kind == TRUNCATE:
        at = chance.choice(
            [chance.randrange(size), chance.randrange(-(-size // PAGE_BYTES)) * 4096]
        )
        return Damage(kind, file.name, at)
    if kind == ZERO:
        at = chance.randrange(-(-size // PAGE_BYTES)) * PAGE_BYTES
        with file.open("rb") as opened:
            opened.seek(at)
            return Damage(kind, file.name, at) if any(opened.read(PAGE_BYTES)) else None
    return Damage(kind, file.name, _bit(chance, file, size))


def _bit(chance: random.Random, file: Path, size: int) -> int:
    """Choose a bit, mostly of a byte that is in use."""
    at = chance.randrange(size)
    if chance.random() < _IN_USE:
        with file.open("rb") as opened:
            for _ in range(_SEARCHED_BYTES):
                opened.seek(at)
                if opened.read(1) != b"\0":
                    break
                at = chance.randrange(size)
    return at * 8 + chance.randrange(8)


def _differs(older: Path, file: Path) -> bool:
    return older.exists() and older.read_bytes() != file.read_bytes()


def carry_out(damage: Damage, folder: Path, copies: Sequence[Path]) -> None:
    """Damage the folder."""
    path = folder / damage.file
    if damage.kind == OLD_FOLDER:
        shutil.rmtree(folder)
        shutil.copytree(copies[damage.generation], folder)
    elif damage.kind == OLD_FILE:
        shutil.copyfile(copies[damage.generation] / damage.file, path)
    elif damage.kind == DELETE:
        path.unlink()
    elif damage.kind == TRUNCATE:
        with path.open("r+b") as opened:
            opened.truncate(damage.at)
    else:
        _overwrite(damage, path)


def _overwrite(damage: Damage, path: Path) -> None:
    with path.open("r+b") as opened:
        if damage.kind == ZERO:
            opened.seek(damage.at)
            length = len(opened.read(PAGE_BYTES))
            opened.seek(damage.at)
            opened.write(bytes(length))
        else:
            opened.seek(damage.at // 8)
            (byte,) = opened.read(1)
            opened.seek(damage.at // 8)
            opened.write(bytes([byte ^ (1 << damage.at % 8)]))
