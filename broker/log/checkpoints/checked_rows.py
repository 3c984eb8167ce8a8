"""Rows with checksums in the named databases of an LMDB environment.

LMDB has no checksums of its own, so a flipped bit in a row would be read as another row. Every row
therefore begins with a CRC-32C over its database, its key and its value, which is checked at every
read. A row that is missing, or that should not be there, shows in the *sums*: the number of rows of
each database and the sum of their checksums. They are a row too, which every write transaction
replaces, and it names that transaction. An older commit that LMDB goes on from shows by that.

    row      crc u32 | value
    format   format u32: not checked, so that every release can read it; the sums repeat it
    sums     crc u32 | format u32, transaction u64 | of each database: rows u64, sum u64
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import lmdb
from crc32c import crc32c

CRC: Final = struct.Struct(">I")
FORMAT_KEY: Final = b"format"
SUMS_KEY: Final = b"sums"
UNCHECKED_KEYS: Final = frozenset({FORMAT_KEY, SUMS_KEY})
"""The keys of the database ``STORE`` that are no rows."""
STORE: Final = b"store"
_SUMS_HEAD: Final = struct.Struct(">IQ")
_SUM: Final = struct.Struct(">QQ")
_LOW_64_BITS: Final = 2**64 - 1


class RowDamaged(Exception):
    """Raised when a row is not what was written."""


def packed_row(database: bytes, key: bytes, value: bytes) -> bytes:
    """Return the row with its checksum."""
    return CRC.pack(_crc(database, key, value)) + value


def checked_value(database: bytes, key: bytes, row: bytes) -> bytes:
    """Return the value in a row.

    Raises:
        RowDamaged: The row is not what was written.
    """
    value = row[CRC.size :]
    if len(row) < CRC.size or _crc(database, key, value) != CRC.unpack_from(row)[0]:
        raise RowDamaged(
            f"the row {key.hex()} of {database.decode()!r} does not match its checksum"
        )
    return value


def _crc(database: bytes, key: bytes, value: bytes) -> int:
    return int(crc32c(value, crc32c(key, crc32c(b"%b %d " % (database, len(key))))))


class Sums:
    """The number of rows of each database, and the sum of their checksums."""

    def __init__(self, names: Sequence[bytes], version: int) -> None:
        self.names = tuple(names)
        self.version = version
        self.written_by = 0
        """The transaction that wrote them."""
        self._rows = dict.fromkeys(names, 0)
        self._totals = dict.fromkeys(names, 0)

    def add(self, database: bytes, row: bytes) -> None:
        """Count a row that is there now."""
        self._rows[database] += 1
        self._totals[database] += CRC.unpack_from(row)[0]

    def remove(self, database: bytes, row: bytes) -> None:
        """Count a row that is there no more."""
        self._rows[database] -= 1
        self._totals[database] -= CRC.unpack_from(row)[0]

    def difference(self, found: "Sums") -> str:
        """Return what differs in the rows that were found, or an empty string."""
        for name in self.names:
            if found._rows[name] != self._rows[name]:
                return (
                    f"{found._rows[name]} rows of {name.decode()!r} instead of {self._rows[name]}"
                )
            if (found._totals[name] - self._totals[name]) & _LOW_64_BITS:
                return f"other rows of {name.decode()!r} than were written"
        return ""

    def pack(self, transaction: int) -> bytes:
        """Return the sums as ``transaction`` writes them."""
        body = _SUMS_HEAD.pack(self.version, transaction) + b"".join(
            _SUM.pack(self._rows[name] & _LOW_64_BITS, self._totals[name] & _LOW_64_BITS)
            for name in self.names
        )
        return packed_row(STORE, SUMS_KEY, body)

    @classmethod
    def unpack(cls, names: Sequence[bytes], row: bytes | None) -> "Sums":
        """Return the sums that were packed.

        Raises:
            RowDamaged: They are missing, or not what was written.
        """
        if row is None:
            raise RowDamaged("it does not say how many rows it has")
        body = checked_value(STORE, SUMS_KEY, row)
        if len(body) != _SUMS_HEAD.size + len(names) * _SUM.size:
            raise RowDamaged(f"{len(body)} bytes say how many rows it has")
        version, written_by = _SUMS_HEAD.unpack_from(body)
        sums = cls(names, version)
        sums.written_by = written_by
        for name, (rows, total) in zip(
            names, _SUM.iter_unpack(body[_SUMS_HEAD.size :]), strict=True
        ):
            sums._rows[name], sums._totals[name] = rows, total
        return sums


class RowReader:
    """A transaction that reads rows."""

    def __init__(
        self, transaction: "lmdb.Transaction[bytes]", databases: "dict[bytes, lmdb._Database]"
    ) -> None:
        self._transaction = transaction
        self._databases = databases

    def get(self, database: bytes, key: bytes) -> bytes | None:
        """Return the value of a row, or None if there is none.

        Raises:
            RowDamaged: The row is not what was written.
        """
        row = self._transaction.get(key, db=self._databases[database])
        return None if row is None else checked_value(database, key, row)

    def rows(self, database: bytes, first: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) of every row from ``first`` on, by key.

        Raises:
            RowDamaged: A row is not what was written.
        """
        with self._transaction.cursor(self._databases[database]) as cursor:
            if not cursor.set_range(first):
                return
            for key, row in cursor:
                if database != STORE or key not in UNCHECKED_KEYS:
                    yield key, checked_value(database, key, row)


class RowWriter(RowReader):
    """A transaction that writes rows, and their sums."""

    def __init__(
        self, transaction: "lmdb.Transaction[bytes]", databases: "dict[bytes, lmdb._Database]"
    ) -> None:
        super().__init__(transaction, databases)
        row = transaction.get(SUMS_KEY, db=databases[STORE])
        self._sums = Sums.unpack([*databases], row)
        self._is_changed = False

    def put(self, database: bytes, key: bytes, value: bytes) -> None:
        """Add a row, or replace it."""
        row = packed_row(database, key, value)
        old = self._transaction.replace(key, row, db=self._databases[database])
        if old is not None:
            self._sums.remove(database, old)
        self._sums.add(database, row)
        self._is_changed = True

    def add(self, database: bytes, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Add rows, or replace them."""
        for key, value in items:
            self.put(database, key, value)

    def delete(self, database: bytes, key: bytes) -> None:
        """Delete a row, if it is there."""
        old = self._transaction.pop(key, db=self._databases[database])
        if old is not None:
            self._sums.remove(database, old)
            self._is_changed = True

    def finish(self) -> None:
        """Write the sums. The commit follows."""
        if self._is_changed:
            packed = self._sums.pack(self._transaction.id())
            self._transaction.put(SUMS_KEY, packed, db=self._databases[STORE])


class CheckedRows:
    """The named databases of one environment."""

    def __init__(self, environment: lmdb.Environment, names: Sequence[bytes]) -> None:
        """Open the databases, which must exist."""
        self.environment = environment
        self._databases = {name: environment.open_db(name, create=False) for name in names}

    @contextmanager
    def reading(self) -> Iterator[RowReader]:
        with self.environment.begin() as transaction:
            yield RowReader(transaction, self._databases)

    @contextmanager
    def writing(self) -> Iterator[RowWriter]:
        """Yield a transaction that is committed at the end, and aborted after an exception."""
        with self.environment.begin(write=True) as transaction:
            writer = RowWriter(transaction, self._databases)
            yield writer
            writer.finish()


def begin_rows(environment: lmdb.Environment, names: Sequence[bytes], version: int) -> None:
    """Give the databases checksums in one transaction; those that are missing are created.

    The rows that are there have none yet, because an older release wrote them, or nobody.
    """
    with environment.begin(write=True) as transaction:
        sums = Sums(names, version)
        for name in names:
            database = environment.open_db(name, transaction)
            with transaction.cursor(database) as cursor:
                items = [(key, value) for key, value in cursor if key != FORMAT_KEY]
            for key, value in items:
                row = packed_row(name, key, value)
                transaction.put(key, row, db=database)
                sums.add(name, row)
        store = environment.open_db(STORE, transaction)
        transaction.put(FORMAT_KEY, CRC.pack(version), db=store)
        transaction.put(SUMS_KEY, sums.pack(transaction.id()), db=store)
