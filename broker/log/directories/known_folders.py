"""The record of which log folders a broker has, which each of them keeps (KIP-858's directory ids).

A folder that is missing when the broker starts is noticed by it, and an empty folder in the place
of a disk that is not mounted is never taken for a new one. The record is in the file
``log-folders.json`` of every folder; the one with the highest version counts. A broker with one
folder has no such file.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from quorate.common.files.checked_json import decode_checked_json, encode_checked_json
from quorate.common.files.data_folder import DataFolderMalformed
from quorate.common.files.durable_files import write_durably

FILE_NAME: Final = "log-folders.json"
FORMAT: Final = 1


class Absence(NamedTuple):
    """What the quorum knew of this broker when a folder was used for the last time (rule 8).

    The folder is an old copy if it lacks the incarnation, or has a lower mark.
    """

    incarnation_id: bytes
    epoch: int
    mark: int


class KnownFolder(NamedTuple):
    """A folder of this broker, where it was last, and since when it is absent."""

    path: str
    absence: Absence | None = None


class KnownFolders(NamedTuple):
    """The folders of a broker by directory id. ``version`` grows with every change."""

    version: int = 0
    folders: Mapping[bytes, KnownFolder] = {}

    def with_folders(self, folders: Mapping[bytes, KnownFolder]) -> "KnownFolders":
        """Return the record with these folders instead, or the same if they are no others."""
        if folders == self.folders:
            return self
        return KnownFolders(self.version + 1, folders)


class FoundFolder(NamedTuple):
    """What is at one path of ``log.dirs``. ``directory_id`` is None if no broker has used it."""

    path: Path
    directory_id: bytes | None = None
    has_logs: bool = False
    error: str = ""
    """Why the folder cannot be used, or an empty string."""


class FolderPlan(NamedTuple):
    """The folders to open, and why the others are not opened."""

    usable: Sequence[Path]
    offline: Mapping[Path, str]
    missing: Mapping[bytes, KnownFolder]
    """The folders with replicas of this broker that are not among the usable ones."""


def plan_folders(found: Sequence[FoundFolder], known: KnownFolders) -> FolderPlan:
    """Decide which folders a broker opens, from what is at their paths and what it had before.

    A path that was never used is a new folder, unless another folder was there before.
    """
    usable: list[Path] = []
    offline: dict[Path, str] = {}
    present: set[bytes] = set()
    by_path = {one.path: directory_id for directory_id, one in known.folders.items()}
    for one in found:
        why = one.error or _why_not(one, known, by_path)
        if why:
            offline[one.path] = why
            continue
        usable.append(one.path)
        if one.directory_id is not None:
            present.add(one.directory_id)
    missing = {key: one for key, one in known.folders.items() if key not in present}
    for directory_id, gone in missing.items():
        offline.setdefault(Path(gone.path), _not_listed(directory_id, gone))
    return FolderPlan(usable, offline, missing)


def _why_not(one: FoundFolder, known: KnownFolders, by_path: Mapping[str, bytes]) -> str:
    if not known.folders:
        return ""
    if one.directory_id in known.folders:
        return ""
    if one.directory_id is not None and one.has_logs:
        return (
            f"log directory {one.path} (id {one.directory_id.hex()}) is not, or no longer, one of "
            "this broker's: empty it, or take it out of log.dirs"
        )
    before = by_path.get(str(one.path))
    if before is None:
        return ""
    return (
        f"log directory {one.path} is empty, and this broker had the folder {before.hex()} "
        f"there: mount its disk, then restart this broker. {_give_up(before)}"
    )


def _not_listed(directory_id: bytes, gone: KnownFolder) -> str:
    return (
        f"log directory {gone.path} (id {directory_id.hex()}) of this broker is not at any path of "
        f"log.dirs: add it, then restart this broker. {_give_up(directory_id)}"
    )


def _give_up(directory_id: bytes) -> str:
    return (
        "If its disk is gone for good, stop this broker, and `quorate log folders forget "
        f"{directory_id.hex()}` gives its replicas up: they are fetched from their leaders"
    )


def newest(records: Iterable[KnownFolders | None]) -> KnownFolders:
    """Return the record of the highest version, or an empty one."""
    there = [one for one in records if one is not None]
    return max(there, key=lambda one: one.version, default=KnownFolders())


def read_known_folders(folder: Path) -> KnownFolders | None:
    """Return the record in ``folder``, or None if it has none.

    Raises:
        DataFolderMalformed: The record is not what was written.
        OSError: The file cannot be read.
    """
    file = folder / FILE_NAME
    try:
        content = decode_checked_json(file.read_bytes())
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']}, this version reads {FORMAT}")
        folders = {bytes.fromhex(key): _known(one) for key, one in content["folders"].items()}
        return KnownFolders(int(content["version"]), folders)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise DataFolderMalformed(
            f"{file} is malformed ({error}). Copy the file of this name from another log folder "
            "of this broker"
        ) from error


def write_known_folders(folder: Path, known: KnownFolders) -> None:
    """Write the record, durably.

    Raises:
        OSError: The folder cannot be written.
    """
    folders = {key.hex(): _packed(one) for key, one in sorted(known.folders.items())}
    content = {"format": FORMAT, "version": known.version, "folders": folders}
    write_durably(folder / FILE_NAME, encode_checked_json(content))


def _packed(one: KnownFolder) -> dict[str, Any]:
    absence = one.absence
    if absence is None:
        return {"path": one.path}
    incarnation = absence.incarnation_id.hex()
    return {"path": one.path, "absent_since": [incarnation, absence.epoch, absence.mark]}


def _known(packed: Mapping[str, Any]) -> KnownFolder:
    absence = None
    if "absent_since" in packed:
        incarnation, epoch, mark = packed["absent_since"]
        absence = Absence(bytes.fromhex(incarnation), int(epoch), int(mark))
    return KnownFolder(str(packed["path"]), absence)
