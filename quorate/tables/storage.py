"""Storage of data files: local disks and object stores, all through pyarrow's file systems.

Properties have pyiceberg's names (``s3.endpoint``, ``s3.access-key-id``, ``gcs.…``, ``adls.…``)
for both formats. deltalake writes its log itself, and gets the same values under its own names.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

FILE_SCHEME: Final = "file://"

_DELTA_NAMES: Final[Mapping[str, str]] = {
    "s3.endpoint": "AWS_ENDPOINT_URL",
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session-token": "AWS_SESSION_TOKEN",
    "s3.region": "AWS_REGION",
    "gcs.oauth2.token": "GOOGLE_BEARER_TOKEN",
    "adls.account-name": "AZURE_STORAGE_ACCOUNT_NAME",
    "adls.account-key": "AZURE_STORAGE_ACCOUNT_KEY",
    "adls.sas-token": "AZURE_STORAGE_SAS_TOKEN",
    "adls.tenant-id": "AZURE_STORAGE_TENANT_ID",
    "adls.client-id": "AZURE_STORAGE_CLIENT_ID",
    "adls.client-secret": "AZURE_STORAGE_CLIENT_SECRET",
}


def absolute_location(location: str) -> str:
    """Return a location with its scheme; one without is a folder of this machine."""
    if "://" in location:
        return location.rstrip("/")
    return f"{FILE_SCHEME}{Path(location).resolve()}"


def is_local(location: str) -> bool:
    """Return True if the location is a folder of this machine."""
    return location.startswith((FILE_SCHEME, "/"))


def local_path(location: str) -> Path:
    """Return the path of a local location."""
    return Path(location.removeprefix(FILE_SCHEME))


def open_storage(properties: Mapping[str, str]) -> "FileIO":
    """Return the access to files, by their full locations."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    return PyArrowFileIO(dict(properties))


def delta_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the options that deltalake takes. Unknown names are passed on as they are."""
    options = {_DELTA_NAMES.get(name, name): value for name, value in properties.items()}
    endpoint = options.get("AWS_ENDPOINT_URL", "")
    if endpoint.startswith("http://"):
        options.setdefault("AWS_ALLOW_HTTP", "true")
    return options


def make_durable(location: str) -> None:
    """Fsync a file of a local disk, and its folder. Object stores need nothing."""
    if not is_local(location):
        return
    path = local_path(location)
    for one in (path, path.parent):
        descriptor = os.open(one, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file below a folder."""

    location: str
    modified_ms: int


def files_below(storage: "FileIO", location: str) -> Iterator[StoredFile]:
    """Yield all files below a folder, at any depth; none if there is no such folder."""
    from pyarrow.fs import FileSelector, FileType

    system, root = _system(storage, location)
    prefix = location.removesuffix(root)
    for found in system.get_file_info(FileSelector(root, allow_not_found=True, recursive=True)):
        if found.type == FileType.File:
            modified_ms = int((found.mtime_ns or 0) // 1_000_000)
            yield StoredFile(f"{prefix}{found.path}", modified_ms)


def delete_files(storage: "FileIO", locations: Sequence[str]) -> None:
    """Delete files; one that is gone already is passed over."""
    for location in locations:
        try:
            storage.delete(location)
        except FileNotFoundError:
            continue


def _system(storage: "FileIO", location: str) -> tuple[Any, str]:
    """Return the file system of a location, and the path in it."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    assert isinstance(storage, PyArrowFileIO)
    scheme, netloc, path = storage.parse_location(location, storage.properties)
    return storage.fs_by_scheme(scheme, netloc), path
