"""One run of a pipeline: it cleans up after earlier runs, then does batch after batch.

The order of effects is what matters here; the module ``sink`` explains why it is safe.
"""

import contextlib

from quorate.common.topic_partition import TopicPartition
from quorate.pipeline.batch_runner import BatchRunner
from quorate.pipeline.pipeline_errors import PipelineError, RunFenced, SinkError
from quorate.pipeline.pipeline_planner import PipelineBatch, PipelinePlanner
from quorate.pipeline.pipeline_registry import ActiveRun, offsets_of, steps_between
from quorate.pipeline.run_progress import RunProgress
from quorate.pipeline.sink import Sink, StagedBatch, files_beyond, lowered_to_file_starts
from quorate.pipeline.sink_layout import BatchId
from quorate.pipeline.spark_rows import SparkRows


class PipelineRunner(BatchRunner):
    """One run of a pipeline into a folder of Parquet files, which is in charge."""

    def __init__(
        self,
        charge: ActiveRun,
        *,
        sink: Sink,
        planner: PipelinePlanner,
        rows: SparkRows,
        progress: RunProgress,
    ) -> None:
        super().__init__(charge, planner=planner, progress=progress)
        self._sink = sink
        self._rows = rows

    def prepare(self, now_ms: int) -> None:
        """Bring the sink into the state that the cluster's record describes."""
        state = self._charge.state
        self._sink.recover(BatchId(state.commit_epoch, state.commit), now_ms)
        if state.commit_epoch:
            self._sink.require_layout()
        else:
            self._refuse_leftovers()
            self._sink.begin_layout()
        if state.rewound:
            self._remove_rows_of_reset_offsets()
        self._begin_topics()

    # -- preparing -------------------------------------------------------------------------------

    def _refuse_leftovers(self) -> None:
        """Refuse a sink with files of a pipeline of this name whose offsets nobody knows."""
        if found := self._sink.own_files():
            raise SinkError(
                f"the sink holds {len(found)} files of an earlier pipeline named "
                f"{self._charge.state.name}, as {found[0].path}: remove them, choose another "
                "sink.path, or another name"
            )

    def _remove_rows_of_reset_offsets(self) -> None:
        """Remove all rows at or above the offsets that the pipeline was reset to.

        This takes two commits, so that a run killed between them can be repeated: the first lowers
        the offsets to the starts of files, the second notes that the files are removed.
        """
        state = self._charge.state
        present = self._sink.own_files()
        recorded = offsets_of(state)
        at = lowered_to_file_starts(recorded, present)
        lower = {one: offset for one, offset in at.items() if offset != recorded[one]}
        if lower:
            self._require_in_log(lower, recorded)
            topic_ids = {one.topic: one.topic_id for one in state.topics}
            self._charge.commit(steps_between(state, lower, topic_ids), rewound=True)
        self._sink.delete_files(files_beyond(at, present))
        self._charge.commit([], rewound=False)

    def _require_in_log(
        self, lower: dict[TopicPartition, int], recorded: dict[TopicPartition, int]
    ) -> None:
        earliest = self._planner.earliest(sorted(lower))
        for partition, start in sorted(lower.items()):
            if earliest[partition] > start:
                raise PipelineError(
                    f"the pipeline was set back to offset {recorded[partition]} of {partition}, "
                    f"which lies in a file that begins at {start}; to write that file anew, its "
                    f"records must be there, and the log begins at {earliest[partition]}: reset "
                    f"{partition} to {start} and accept the gap (failOnDataLoss = false), or to "
                    "the end of that file"
                )

    # -- a batch ---------------------------------------------------------------------------------

    def _do(self, batch: PipelineBatch) -> None:
        self._progress.begun(batch)
        batch_id = self._charge.next_batch
        staged: StagedBatch | None = None
        try:
            if batch.ranges:
                self._rows.write(batch.ranges, self._sink.staging_path(batch_id))
                staged = self._sink.staged(batch_id, batch.ranges)
                self._refuse_recreated_topics(batch)
                self._sink.publish(staged, self._charge)
        except BaseException as error:
            self._abandon(staged, batch_id)
            if isinstance(error, PipelineError):
                self._raise_if_out_of_charge()
            raise
        self._commit(batch, staged, batch_id)
        self._sink.forget(batch_id)
        rows, files = (0, 0) if staged is None else (staged.rows, len(staged.names))
        self.summary.add(batch, rows=rows, files=files)
        self._progress.committed(batch, rows)

    def _commit(self, batch: PipelineBatch, staged: StagedBatch | None, batch_id: BatchId) -> None:
        """Commit the batch, and abandon it only if the cluster clearly refused it.

        After any other error the batch may be committed. The next run finds out.
        """
        steps = steps_between(self._charge.state, dict(batch.ends), dict(batch.topic_ids))
        try:
            self._charge.commit(steps, rows=0 if staged is None else staged.rows, rewound=False)
        except RunFenced:
            self._abandon(staged, batch_id)
            raise

    def _abandon(self, staged: StagedBatch | None, batch_id: BatchId) -> None:
        # The next run removes the files that cannot be removed now.
        with contextlib.suppress(SinkError):
            self._sink.abandon(staged, batch_id)
