"""What a pipeline needs of a table, whatever its format: positions, a layout and atomic commits."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from quorate.common.topic_partition import TopicPartition
from quorate.spark.offset_ranges import DescribedTopic, OffsetRange
from quorate.tables.data_files import FileLayout, WrittenFile
from quorate.tables.earlier_rows import Replaced
from quorate.tables.table_position import TablePosition


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """One atomic change of a table: rows, and the position that they bring it to."""

    position: TablePosition
    """The position afterwards."""
    files: Sequence[WrittenFile] = ()
    ranges: Sequence[OffsetRange] = ()
    """The offsets that the files hold, for those who read the history of the table."""
    removed: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Partitions of which all rows at and above an offset are removed."""
    replaced: Replaced = field(default_factory=dict)
    """The keys whose earlier rows are removed."""
    moved: Collection[TopicPartition] = ()
    """The partitions whose mark is another one than before."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What a step of maintenance has done."""

    files_before: int = 0
    files_after: int = 0
    snapshots_expired: int = 0
    orphans_deleted: int = 0


@dataclass(frozen=True, slots=True)
class TableContent:
    """All rows of one state of a table, for those who read its files themselves."""

    files: Sequence[str]
    """The locations of the data files."""
    schema: pa.Schema
    """The columns, without those that only the partitions of a Delta table need."""
    folder: str
    partitions_in_paths: bool = False
    """True if partition columns are not in the files, but in their paths."""


class LakeTable(Protocol):
    """An Iceberg or a Delta table that one pipeline writes to. All methods raise ``TableError``."""

    @property
    def sink(self) -> str:
        """The identity of the table, which the quorum keeps: another table of the same name has
        another one."""

    def reload(self) -> None:
        """Look at the newest state of the table."""

    def fit(self, schema: pa.Schema) -> None:
        """Add the columns that the table lacks, as nullable ones.

        Raises:
            TableError: a column has another type in the table.
        """

    def content(self) -> TableContent:
        """Return the data files of the present state of the table.

        Raises:
            TableError: another writer has marked rows of these files as deleted.
        """

    def layout(self, prefix: str) -> FileLayout:
        """Return how data files for the present state of the table are written."""

    def check_layout(self, layout: FileLayout) -> None:
        """Check that files of the layout fit the present state of the table.

        Raises:
            TableChanged: names what has changed.
        """

    def position(
        self, topics: Mapping[str, DescribedTopic], *, was_reset: bool = False
    ) -> TablePosition:
        """Return the position of the pipeline in the present state of the table.

        Args:
            topics: the topics that the position is asked of; with none, only the number of commits
                and the run are sure to be right.
            was_reset: the pipeline was reset, so that it does not matter what the table has.

        Raises:
            TableError: somebody has set the table back to where its position is not known.
        """

    def commit(self, change: TableCommit) -> None:
        """Commit to the present state, once; anything newer is a conflict.

        Raises:
            CommitConflict: another writer has committed since the last `reload`.
            TableUnavailable: nothing was committed, or it is not known.
        """

    def compact(self, small_bytes: int) -> Upkeep:
        """Join files that are smaller than ``small_bytes``."""

    def expire(self, older_than_ms: int) -> Upkeep:
        """Forget snapshots that are older than a moment, in ms since 1970, and delete the files
        that only they had."""

    def remove_orphans(self, older_than_ms: int) -> Upkeep:
        """Delete files that no snapshot knows and that were written before a moment."""
