"""Commits to a table beside other writers: on its newest state, as long as that is safe."""

import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import Final

from quorate.spark.offset_ranges import DescribedTopic
from quorate.tables.data_files import FileLayout
from quorate.tables.lake_table import LakeTable, TableCommit
from quorate.tables.table_errors import CommitConflict, PositionMoved, TableError, TableUnavailable
from quorate.tables.table_position import TablePosition

ATTEMPTS_MAX: Final = 12
PAUSE_S: Final = 0.05
PAUSE_S_MAX: Final = 2.0

_logger = logging.getLogger(__name__)


class TableCommits:
    """Makes the commits of one run of a pipeline, and knows the position that they lead to."""

    def __init__(self, table: LakeTable, pause: Callable[[float], None] = time.sleep) -> None:
        self._table = table
        self._pause = pause
        self._was_reset = False
        self.position = TablePosition()
        """The position of the table as this run knows it."""

    def look(self, topics: Mapping[str, DescribedTopic], *, was_reset: bool) -> None:
        """Read the position of the newest state of the table."""
        self._table.reload()
        self._was_reset = was_reset
        self.position = self._table.position(topics, was_reset=was_reset)

    def commit(self, change: TableCommit, layout: FileLayout | None = None) -> None:
        """Commit a change that follows the known position.

        Raises:
            PositionMoved: another run of the pipeline has committed.
            TableChanged: the files do not fit the table any more.
            TableUnavailable: no commit was possible, or its outcome is not known.
        """
        for attempt in range(ATTEMPTS_MAX):
            try:
                if attempt:
                    self._pause(_pause_s(attempt))
                    self._table.reload()
                if self._has_landed(change):
                    break
                if layout is not None:
                    self._table.check_layout(layout)
                self._table.commit(change)
                break
            except CommitConflict as error:
                _logger.info("%s; trying again on the new state", error)
                conflict: TableError = error
            except TableUnavailable as error:
                # It may have been committed. The next attempt looks before it commits.
                _logger.warning("%s", error)
                conflict = error
                if attempt + 1 >= ATTEMPTS_MAX // 3:
                    raise
        else:
            raise TableUnavailable(
                f"{conflict}; gave up after {ATTEMPTS_MAX} attempts: other writers commit faster"
            ) from conflict
        self.position = change.position
        self._was_reset = False

    def _has_landed(self, change: TableCommit) -> bool:
        """Return True if an attempt whose outcome was not known was committed.

        Raises:
            PositionMoved: another run of the pipeline has committed.
        """
        found = self._table.position({}, was_reset=self._was_reset)
        if _is(found, self.position):
            return False
        if _is(found, change.position):
            return True
        raise PositionMoved(
            f"another run has committed to the table: it is at commit {found.commits} of run "
            f"{found.run_epoch}, and this run knows commit {self.position.commits}"
        )


def _is(found: TablePosition, wanted: TablePosition) -> bool:
    return (found.commits, found.run_epoch) == (wanted.commits, wanted.run_epoch)


def _pause_s(attempt: int) -> float:
    return min(PAUSE_S * 2.0**attempt, PAUSE_S_MAX) * random.uniform(0.5, 1.0)
