"""Checks the file of a table before LMDB opens it: its pages, then every row.

The file is read by ``pread`` (``quorate.common.files.lmdb_check``), so damage is an error that says
what to do, and never a signal or other contents.
"""

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.checkpoints.checked_rows import (
    CRC,
    FORMAT_KEY,
    STORE,
    SUMS_KEY,
    UNCHECKED_KEYS,
    RowDamaged,
    Sums,
    checked_value,
)
from quorate.common.files.lmdb_check import LmdbDamaged, LmdbFile, OnRow
from quorate_proto.v1 import errors_pb2

Row = tuple[bytes, bytes, bytes]
"""The database, key and value of a row."""

_REPAIR: Final = (
    "restore the file as it was, or run `quorate log repair --log-dir {}`: it sets the table and "
    "its segments aside, and this broker then declares its logs lost and fetches them from their "
    "leaders"
)


class TableDamaged(KafkaError):
    """The table is not what was written."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            errors_pb2.KAFKA_STORAGE_ERROR,
            f"partition table {path} is damaged: {problem}; {_REPAIR.format(path.parent)}",
        )
        self.path = path
        self.problem = problem


def check_table(path: Path, names: Sequence[bytes], known: Sequence[int], on_row: OnRow) -> int:
    """Check the whole file, and return its format. ``on_row`` gets every row, and checks it.

    ``known`` are the formats that this release reads. Rows of the first have no checksums.

    Raises:
        TableDamaged: The file is not what was written.
        KafkaError: KAFKA_STORAGE_ERROR; it is of another format.
        OSError: The file cannot be read.
    """
    try:
        with LmdbFile(path) as file:
            found: list[tuple[bytes, bytes, bytes]] = []
            file.check(lambda *row: found.append(row))
            store = {key: row for name, key, row in found if name == STORE}
            version = _version(path, names, store, known)
            rows = [row for row in found if row[0] != STORE or row[1] not in UNCHECKED_KEYS]
            if version != known[0]:
                rows = _checked(rows, names, store.get(SUMS_KEY), version, file.newer.transaction)
    except (LmdbDamaged, RowDamaged) as error:
        problem = error.problem if isinstance(error, LmdbDamaged) else str(error)
        raise TableDamaged(path, problem) from error
    try:
        for row in rows:
            on_row(*row)
    except RowDamaged as error:
        raise TableDamaged(path, str(error)) from error
    return version


def _checked(
    rows: Iterable[Row], names: Sequence[bytes], packed: bytes | None, version: int, last: int
) -> list[Row]:
    """Return the rows without their checksums, and check that they are all."""
    sums = Sums.unpack(names, packed)
    if sums.version != version:
        raise RowDamaged(f"it has format {version} and rows of format {sums.version}")
    if sums.written_by != last:
        raise RowDamaged(
            f"it has the rows of commit {sums.written_by}, but commit {last} was the last"
        )
    checked = []
    found = Sums(names, version)
    for name, key, row in rows:
        if name not in names:
            raise RowDamaged(f"it has an unknown database {name!r}")
        checked.append((name, key, checked_value(name, key, row)))
        found.add(name, row)
    if difference := sums.difference(found):
        raise RowDamaged(f"it has {difference}")
    return checked


def _version(
    path: Path, names: Sequence[bytes], store: dict[bytes, bytes], known: Sequence[int]
) -> int:
    try:
        (version,) = CRC.unpack(store[FORMAT_KEY])
    except (KeyError, struct.error):
        raise RowDamaged("it does not say its format") from None
    has_sums = SUMS_KEY in store
    if version in known and has_sums == (version != known[0]):
        return int(version)
    if has_sums and (of := Sums.unpack(names, store[SUMS_KEY]).version) in known:
        raise RowDamaged(f"it has format {version} and rows of format {of}")
    raise KafkaError(
        errors_pb2.KAFKA_STORAGE_ERROR,
        f"partition table {path} has format {version}, this release reads "
        f"{' and '.join(map(str, known))}; start the release that wrote it",
    )
