"""Takes the earlier rows of keys out of a table, by writing anew the data files that have them.

A data file never changes. So a file that has the row of a key that got a newer record is replaced,
in the commit that adds the newer row, by one without it (*copy on write*). Readers need no
knowledge of deletes. Files that have none of the keys are not touched, and what has changed lately
is in small files, so keys that change often cost little.

To know which files have a key, the column of keys is read, and kept in memory up to a limit.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from quorate.common.topic_partition import TopicPartition
from quorate.tables.data_files import FileLayout, WrittenFile, write_files
from quorate.tables.storage import delete_files, open_storage
from quorate.tables.table_errors import TableError
from quorate.tables.write_mode import identity_column

KEPT_KEYS_BYTES: Final = 256 << 20
"""The bytes of the column of keys that are kept in memory, for each table."""
SMALL_FILE_BYTES: Final = 32 << 20
"""Files that are smaller are joined when they are written anew."""
_TOPIC, _PARTITION = "topic", "partition"
_OTHER_TOPIC: Final = -1

Replaced = Mapping[TopicPartition, pa.Array]
"""The keys of each partition whose earlier rows go, as bytes."""


@dataclass(frozen=True, slots=True)
class PresentFile:
    """A data file of the present state of the table."""

    location: str
    size: int
    partitions: tuple[int, int] | None
    """The least and the greatest partition of the topic that it has rows of, if that is known."""
    read: Callable[[Sequence[str] | None], Iterator[pa.RecordBatch]]
    """Reads the named columns, or all, in the order of the file."""
    handle: Any
    """The handle by which the format removes the file."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The change that takes earlier rows out of the table, once it is committed."""

    removed: Sequence[PresentFile] = ()
    """The files that go."""
    written: Sequence[WrittenFile] = ()
    """Files with the rows of these that stay."""


@dataclass(frozen=True, slots=True)
class _Touched:
    """A file that has rows that go."""

    file: PresentFile
    stays: pa.ChunkedArray


class EarlierRows:
    """Finds the earlier rows of keys in the files of one table."""

    def __init__(self) -> None:
        self._keys = _KeysOfFiles()

    def without(
        self, files: Sequence[PresentFile], replaced: Replaced, layout: FileLayout
    ) -> Rewritten:
        """Write the files that have rows of the keys anew, without these rows.

        Raises:
            TableError: a file cannot be read or written; nothing that was written is left.
        """
        [topic] = {partition.topic for partition in replaced}
        by_number = {partition.partition: keys for partition, keys in replaced.items()}
        with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="earlier") as threads:
            searched = threads.map(lambda one: self._searched(one, topic, by_number, layout), files)
            touched = [one for one in searched if one is not None]
            written = _written(threads, touched, layout)
        return Rewritten([one.file for one in touched], written)

    def _searched(
        self, file: PresentFile, topic: str, replaced: Mapping[int, pa.Array], layout: FileLayout
    ) -> _Touched | None:
        first, last = file.partitions or (0, 1 << 31)
        wanted = [number for number in replaced if first <= number <= last]
        if not wanted:
            return None
        keys, partitions = self._keys.of(file, topic, identity_column(layout.schema.names))
        is_of_one = pc.min_max(partitions).as_py()
        goes = None
        for number in wanted:
            is_replaced = pc.is_in(keys, value_set=replaced[number])
            if is_of_one != {"min": number, "max": number}:
                is_replaced = pc.and_(is_replaced, pc.equal(partitions, number))
            goes = is_replaced if goes is None else pc.or_(goes, is_replaced)
        if not pc.any(goes).as_py():
            return None
        return _Touched(file, pc.invert(goes))


class _KeysOfFiles:
    """The keys in data files, and the partitions of their rows; the newest files are kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, pa.Table] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def of(
        self, file: PresentFile, topic: str, column: str
    ) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        """Return the key and the partition of each row; -1 for a row of another topic."""
        with self._lock:
            found = self._kept.get(file.location)
            if found is not None:
                self._kept.move_to_end(file.location)
        if found is None:
            found = _read_keys(file, topic, column)
            self._keep(file.location, found)
        return found["key"], found["partition"]

    def _keep(self, location: str, found: pa.Table) -> None:
        with self._lock:
            if location in self._kept:
                return
            self._kept[location] = found
            self._bytes += found.nbytes
            while self._bytes > KEPT_KEYS_BYTES and self._kept:
                _, dropped = self._kept.popitem(last=False)
                self._bytes -= dropped.nbytes


def _read_keys(file: PresentFile, topic: str, column: str) -> pa.Table:
    keys: list[pa.Array] = []
    partitions: list[pa.Array] = []
    for batch in file.read([column, _TOPIC, _PARTITION]):
        if column not in batch.schema.names:
            raise TableError(f"data file {file.location} has no column {column}")
        is_of_topic = pc.equal(batch.column(_TOPIC), topic)
        keys.append(batch.column(column).cast(pa.binary()))
        numbers = batch.column(_PARTITION).cast(pa.int32())
        partitions.append(pc.if_else(is_of_topic, numbers, pa.scalar(_OTHER_TOPIC, pa.int32())))
    return pa.table(
        {
            "key": pa.chunked_array(keys, pa.binary()),
            "partition": pa.chunked_array(partitions, pa.int32()),
        }
    )


def _written(
    threads: ThreadPoolExecutor, touched: Sequence[_Touched], layout: FileLayout
) -> list[WrittenFile]:
    """Write the rows that stay, group by group."""
    tasks = [
        threads.submit(write_files, layout, (rows for one in group for rows in _rows_left(one)))
        for group in _groups(touched)
    ]
    written: list[WrittenFile] = []
    failure: BaseException | None = None
    for task in tasks:
        error = task.exception()
        if error is None:
            written += task.result()
        failure = failure or error
    if failure is not None:
        delete_files(open_storage(layout.storage), [one.location for one in written])
        raise failure
    return written


def _groups(touched: Sequence[_Touched]) -> list[list[_Touched]]:
    """Return the files that are written anew into the same ones: the small ones of a partition."""
    groups: dict[object, list[_Touched]] = {}
    for one in touched:
        is_small = one.file.size < SMALL_FILE_BYTES
        groups.setdefault(one.file.partitions if is_small else one.file.location, []).append(one)
    return list(groups.values())


def _rows_left(touched: _Touched) -> Iterator[pa.RecordBatch]:
    begin = 0
    for batch in touched.file.read(None):
        stays = touched.stays.slice(begin, batch.num_rows).combine_chunks()
        begin += batch.num_rows
        yield batch.filter(stays)
    if begin != len(touched.stays):
        raise TableError(
            f"data file {touched.file.location} has {begin} rows, and its keys {len(touched.stays)}"
        )
