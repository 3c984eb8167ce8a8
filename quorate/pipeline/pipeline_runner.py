"""One run of a pipeline: it cleans up after earlier runs, then does batch after batch.

The order of effects is what matters here; the module ``sink`` explains why it is safe.
"""

import contextlib
from dataclasses import dataclass, field

from quorate.client.errors import ClusterUnreachable
from quorate.common.topic_partition import TopicPartition
from quorate.pipeline.pipeline_errors import PipelineError, RunFenced, SinkError
from quorate.pipeline.pipeline_planner import PipelineBatch, PipelinePlanner, next_batch, still_read
from quorate.pipeline.pipeline_registry import ActiveRun, offsets_of, steps_between
from quorate.pipeline.run_progress import RunProgress
from quorate.pipeline.sink import Sink, StagedBatch, files_beyond, lowered_to_file_starts
from quorate.pipeline.sink_layout import BatchId
from quorate.pipeline.spark_rows import SparkRows
from quorate.spark.streaming.stream_checkpoint import StreamOffsets


@dataclass(slots=True)
class RunSummary:
    """The totals of a run so far."""

    batches: int = 0
    offsets: int = 0
    rows: int = 0
    files: int = 0
    moved: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """The offsets of each partition before and after the run."""

    def add(self, batch: PipelineBatch, staged: StagedBatch | None) -> None:
        """Add a committed batch; ``staged`` is None if it had no rows to read."""
        self.batches += 1
        self.offsets += batch.size
        if staged is not None:
            self.rows += staged.rows
            self.files += len(staged.names)
        for one in batch.ranges:
            start, _ = self.moved.get(one.topic_partition, (one.start, one.end))
            self.moved[one.topic_partition] = (start, one.end)


class PipelineRunner:
    """One run of a pipeline, which is in charge."""

    def __init__(
        self,
        charge: ActiveRun,
        *,
        sink: Sink,
        planner: PipelinePlanner,
        rows: SparkRows,
        progress: RunProgress,
    ) -> None:
        self._charge = charge
        self._sink = sink
        self._planner = planner
        self._rows = rows
        self._progress = progress
        self.summary = RunSummary()

    def prepare(self, now_ms: int) -> None:
        """Bring the sink into the state that the cluster's record describes.

        Args:
            now_ms: the wall clock, which file systems use, too.

        Raises:
            PipelineError, QuorateSourceError: this is not possible, or another run is in charge.
        """
        state = self._charge.state
        self._sink.recover(BatchId(state.commit_epoch, state.commit), now_ms)
        if not state.commit_epoch:
            self._refuse_leftovers()
        if state.rewound:
            self._remove_rows_of_reset_offsets()
        self._begin_topics()

    def work(self) -> None:
        """Do batches until everything is read that was there when the planner looked first.

        Raises:
            PipelineError, QuorateSourceError: a batch failed. Those before it are committed.
        """
        start = self._start()
        self._progress.planned(self._planner.waiting(start))
        while (batch := next_batch(self._planner, start)) is not None and self._moves(batch):
            self._do(batch)
            start = self._start()

    def _moves(self, batch: PipelineBatch) -> bool:
        """Return True if the batch changes any committed offset."""
        recorded = offsets_of(self._charge.state)
        return any(recorded.get(one) != end for one, end in batch.ends.items())

    def _start(self) -> StreamOffsets:
        state = self._charge.state
        topic_ids = {one.topic: one.topic_id for one in state.topics}
        return still_read(self._planner.subscription(), offsets_of(state), topic_ids)

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

    def _begin_topics(self) -> None:
        """Commit the initial offsets of new topics before anything of them is read.

        Otherwise "latest" would mean another offset in the run after one that was killed.
        """
        state = self._charge.state
        known = {one.topic for one in state.topics}
        topics = self._planner.topics()
        if known.issuperset(topics):
            return
        starts = self._planner.starts()
        new = {p: offset for p, offset in starts.offsets.items() if p.topic not in known}
        steps = steps_between(state, new, dict(starts.topic_ids))
        if steps:
            self._charge.commit(steps, rewound=False)

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
        self.summary.add(batch, staged)
        self._progress.committed(batch, 0 if staged is None else staged.rows)

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

    def _raise_if_out_of_charge(self) -> None:
        """Raise RunFenced if that explains an error.

        A run that takes over removes the files that this run had staged, and this run's lease
        renewal cancels its work.
        """
        with contextlib.suppress(ClusterUnreachable):
            self._charge.require_in_charge()

    def _abandon(self, staged: StagedBatch | None, batch_id: BatchId) -> None:
        # The next run removes the files that cannot be removed now.
        with contextlib.suppress(SinkError):
            self._sink.abandon(staged, batch_id)

    def _refuse_recreated_topics(self, batch: PipelineBatch) -> None:
        """Refuse a batch if one of its topics was re-created: its records may be others."""
        wanted = {one.topic_partition.topic: one.topic_id for one in batch.ranges}
        found = self._planner.topic_ids(sorted(wanted))
        for topic, topic_id in sorted(wanted.items()):
            if found.get(topic) != topic_id:
                raise PipelineError(
                    f"topic {topic} was deleted while it was read: what was read is dropped; "
                    "if it was created anew, reset the pipeline"
                )
