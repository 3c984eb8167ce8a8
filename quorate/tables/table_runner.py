"""One run of a pipeline into a table.

A batch has three effects, in this order: data files, which no reader sees; the commit of the table,
which makes rows and position visible at once; the commit of the quorum. A run that is killed
between the last two is made good by the next one, which takes the position of the table
(`table_position`). A run that was taken over cannot commit: the table is not at the position that
it knows, or is so only because the new run has not committed anything either; then its commit is as
good as any, and the new run finds that the position has moved.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from quorate.client.results import PipelineStep
from quorate.common.table_keys import TABLE_WRITE_MODE
from quorate.common.topic_partition import TopicPartition
from quorate.pipeline.batch_runner import BatchRunner
from quorate.pipeline.pipeline_errors import PipelineError
from quorate.pipeline.pipeline_planner import PipelineBatch, PipelinePlanner
from quorate.pipeline.pipeline_registry import ActiveRun, offsets_of, steps_between
from quorate.pipeline.run_progress import RunProgress
from quorate.spark.offset_ranges import OffsetRange
from quorate.tables.data_files import FileLayout, WrittenRows
from quorate.tables.lake_table import LakeTable, TableCommit
from quorate.tables.storage import delete_files, open_storage
from quorate.tables.table_commits import TableCommits
from quorate.tables.table_errors import PositionMoved, TableChanged, TableError
from quorate.tables.table_position import Action, Mark, Step, TablePosition, decide
from quorate.tables.write_mode import WriteMode

_logger = logging.getLogger(__name__)


class TableRows(Protocol):
    """Reads the rows of ranges and writes them as data files."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    def plan(self, ranges: Sequence[OffsetRange]) -> None:
        """Find out which columns the rows of the ranges have, as schemas are now; `schema` and
        `write` go by it.

        Raises:
            PipelineError: the rows cannot be planned.
        """

    def write(self, ranges: Sequence[OffsetRange], layout: FileLayout) -> WrittenRows:
        """Write the rows of the ranges, which are planned, and return the files.

        Raises:
            PipelineError: the rows could not be read or written; no file is left.
        """

    def cancel(self) -> None:
        """Cancel the work that is under way; another thread may call this."""

    def fraction_done(self) -> float:
        """Return the fraction of the present batch that is done."""


class TableRunner(BatchRunner):
    """One run of a pipeline into a table, which is in charge."""

    def __init__(
        self,
        charge: ActiveRun,
        *,
        table: LakeTable,
        planner: PipelinePlanner,
        rows: TableRows,
        progress: RunProgress,
        mode: WriteMode = WriteMode.APPEND,
    ) -> None:
        super().__init__(charge, planner=planner, progress=progress)
        self._table = table
        self._commits = TableCommits(table)
        self._rows = rows
        self._mode = mode
        self._looked_at: frozenset[str] = frozenset()

    @property
    def position(self) -> TablePosition:
        """The position of the table."""
        return self._commits.position

    def prepare(self, now_ms: int) -> None:
        """Bring table and quorum into agreement."""
        self._settle()
        self._begin_topics()

    def waiting(self) -> int:
        """Return how many offsets wait now."""
        return self._planner.waiting(self._start())

    # -- both positions --------------------------------------------------------------------------

    def _settle(self) -> None:
        """Carry out what `decide` says of every partition, the table's part first."""
        state = self._charge.state
        topics = self._planner.described()
        self._commits.look(topics, was_reset=state.rewound)
        self._looked_at = frozenset(topics)
        quorum, table = self._quorum_marks(), self._commits.position.marks
        steps = {
            one: decide(quorum.get(one), table.get(one), was_reset=state.rewound)
            for one in sorted(quorum.keys() | table.keys())
        }
        self._refuse_other_topics(steps)
        changes_mode = self._changes_mode(was_reset=state.rewound)
        self._move_table(steps, quorum, is_emptied=changes_mode)
        self._move_quorum(steps, table, was_reset=state.rewound)

    def _quorum_marks(self) -> dict[TopicPartition, Mark]:
        state = self._charge.state
        ids = {one.topic: one.topic_id for one in state.topics}
        return {one: Mark(ids[one.topic], offset) for one, offset in offsets_of(state).items()}

    def _refuse_other_topics(self, steps: Mapping[TopicPartition, Step]) -> None:
        for partition, step in steps.items():
            if step.action is Action.REFUSE:
                raise TableError(
                    f"the table holds rows of another topic named {partition.topic}: it was "
                    "created anew; reset the pipeline to remove them, or name another table"
                )

    def _changes_mode(self, *, was_reset: bool) -> bool:
        """Return True if the table is to be filled again in another mode than before.

        Raises:
            TableError: it has rows of another mode, and was not reset.
        """
        before = self._commits.position
        if not before.marks or before.mode is self._mode:
            return False
        if was_reset:
            return True
        raise TableError(
            f"the rows of the table were written with {TABLE_WRITE_MODE.name}={before.mode}, and "
            f"{self._mode} would not fit them: fill it again with quorate tables backfill, or set "
            f"{TABLE_WRITE_MODE.name}={before.mode} again"
        )

    def _move_table(
        self,
        steps: Mapping[TopicPartition, Step],
        quorum: Mapping[TopicPartition, Mark],
        *,
        is_emptied: bool,
    ) -> None:
        """Remove the rows from the quorum's offsets on after a reset; all rows if told so."""
        moved = {
            partition: quorum[partition]
            for partition, step in steps.items()
            if step.action is Action.MOVE_TABLE or (is_emptied and partition in quorum)
        }
        if not moved:
            return
        change = TableCommit(
            position=self._commits.position.moved(self._charge.run_epoch, moved, self._mode),
            removed={one: 0 if is_emptied else mark.offset for one, mark in moved.items()},
            moved=moved.keys(),
        )
        self._charge.require_in_charge()
        self._commits.commit(change)

    def _move_quorum(
        self,
        steps: Mapping[TopicPartition, Step],
        table: Mapping[TopicPartition, Mark],
        *,
        was_reset: bool,
    ) -> None:
        moved = {p: step.offset for p, step in steps.items() if step.action is Action.MOVE_QUORUM}
        if not moved and not was_reset:
            return
        for partition, offset in moved.items():
            _logger.warning("the table is at offset %s of %s: going on there", offset, partition)
        ids = {partition.topic: table[partition].topic_id for partition in moved}
        self._commit_quorum(steps_between(self._charge.state, moved, ids))

    def _commit_quorum(self, steps: Sequence[PipelineStep], rows: int = 0) -> None:
        self._charge.commit(steps, rows=rows, rewound=False)

    # -- a batch ---------------------------------------------------------------------------------

    def _do(self, batch: PipelineBatch) -> None:
        if not self._looked_at.issuperset(batch.topic_ids):
            # The table may hold rows of a topic that is new to this run.
            self._settle()
            return
        self._progress.begun(batch)
        rows = files = 0
        if batch.ranges:
            written = self._store(batch).files
            rows, files = sum(one.rows for one in written), len(written)
        steps = steps_between(self._charge.state, dict(batch.ends), dict(batch.topic_ids))
        self._commit_quorum(steps, rows)
        self.summary.add(batch, rows=rows, files=files)
        self._progress.committed(batch, rows)

    def _store(self, batch: PipelineBatch) -> WrittenRows:
        """Write the rows of a batch, and commit them to the table."""
        self._rows.plan(batch.ranges)
        self._table.fit(self._rows.schema)
        name = f"{self._charge.state.name}-{self._charge.next_batch}"
        layout = self._table.layout(name)
        written = WrittenRows([])
        try:
            written = self._rows.write(batch.ranges, layout)
            self._refuse_recreated_topics(batch)
            self._charge.require_in_charge()
            self._commits.commit(self._change(batch, written), layout)
        except PipelineError as error:
            if isinstance(error, TableChanged | PositionMoved):
                # Nothing of this batch is committed, and nothing of it will be.
                delete_files(open_storage(layout.storage), [one.location for one in written.files])
            self._raise_if_out_of_charge()
            raise
        return written

    def _change(self, batch: PipelineBatch, written: WrittenRows) -> TableCommit:
        marks = {
            partition: Mark(batch.topic_ids[partition.topic], end)
            for partition, end in batch.ends.items()
        }
        before = self._commits.position
        return TableCommit(
            position=before.moved(self._charge.run_epoch, marks, self._mode),
            files=written.files,
            ranges=batch.ranges,
            moved=[one for one, mark in marks.items() if before.marks.get(one) != mark],
            replaced=written.keys,
        )
