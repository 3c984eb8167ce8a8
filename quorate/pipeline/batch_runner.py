"""One run of a pipeline, whatever it writes to: it plans batch after batch.

A subclass stores the batches. It decides the order of effects, which is what matters.
"""

import contextlib
from dataclasses import dataclass, field

from quorate.client.errors import ClusterUnreachable
from quorate.common.topic_partition import TopicPartition
from quorate.pipeline.pipeline_errors import PipelineError
from quorate.pipeline.pipeline_planner import PipelineBatch, PipelinePlanner, next_batch, still_read
from quorate.pipeline.pipeline_registry import ActiveRun, offsets_of, steps_between
from quorate.pipeline.run_progress import RunProgress
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

    def add(self, batch: PipelineBatch, *, rows: int, files: int) -> None:
        """Add a committed batch."""
        self.batches += 1
        self.offsets += batch.size
        self.rows += rows
        self.files += files
        for one in batch.ranges:
            start, _ = self.moved.get(one.topic_partition, (one.start, one.end))
            self.moved[one.topic_partition] = (start, one.end)


class BatchRunner:
    """One run of a pipeline, which is in charge."""

    def __init__(
        self, charge: ActiveRun, *, planner: PipelinePlanner, progress: RunProgress
    ) -> None:
        self._charge = charge
        self._planner = planner
        self._progress = progress
        self.summary = RunSummary()

    def prepare(self, now_ms: int) -> None:
        """Bring what the pipeline writes to and the cluster's record into agreement.

        Args:
            now_ms: the wall clock, which file systems use, too.

        Raises:
            PipelineError, QuorateSourceError: this is not possible, or another run is in charge.
        """
        raise NotImplementedError

    def _do(self, batch: PipelineBatch) -> None:
        """Store a batch and commit it."""
        raise NotImplementedError

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

    def _raise_if_out_of_charge(self) -> None:
        """Raise RunFenced if that explains an error.

        A run that takes over removes the files that this run had staged, and this run's lease
        renewal cancels its work.
        """
        with contextlib.suppress(ClusterUnreachable):
            self._charge.require_in_charge()

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
