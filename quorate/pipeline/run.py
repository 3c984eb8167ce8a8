"""One run of a pipeline: clears up, then batch after batch until all is done.

The order of effects is the whole point here; ``sink`` says why it is safe.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from quorate.client.errors import ClusterUnreachable
from quorate.pipeline.errors import OutOfCharge, PipelineError, SinkError
from quorate.pipeline.layout import BatchId
from quorate.pipeline.planning import Batch, Planner, next_batch, still_read
from quorate.pipeline.registry import RunInCharge, offsets_of, steps_between
from quorate.pipeline.sink import Sink, Staged, beyond, lowered
from quorate.spark.ranges import OffsetRange, TopicPartition
from quorate.spark.streaming.checkpoint import StreamOffsets

Write = Callable[[Sequence[OffsetRange], str], None]
"""Writes the rows of the ranges into a folder of the sink; raises ``PipelineError``."""


class Watcher(Protocol):
    """Who is told how it goes."""

    def planned(self, offsets: int) -> None: ...

    def begun(self, batch: Batch) -> None: ...

    def committed(self, batch: Batch, rows: int) -> None: ...


@dataclass(slots=True)
class Summary:
    """What a run has done. ``moved``: per partition, from where to where."""

    batches: int = 0
    offsets: int = 0
    rows: int = 0
    files: int = 0
    moved: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)

    def add(self, batch: Batch, staged: Staged | None) -> None:
        self.batches += 1
        self.offsets += batch.size
        if staged is not None:
            self.rows += staged.rows
            self.files += len(staged.names)
        for one in batch.ranges:
            start, _ = self.moved.get(one.topic_partition, (one.start, one.end))
            self.moved[one.topic_partition] = (start, one.end)


class Run:
    """A run that is in charge. ``clock_ms``: wall clock, as the file system's."""

    def __init__(
        self,
        charge: RunInCharge,
        *,
        sink: Sink,
        planner: Planner,
        write: Write,
        watcher: Watcher,
        clock_ms: Callable[[], int],
    ) -> None:
        self._charge = charge
        self._sink = sink
        self._planner = planner
        self._write = write
        self._watcher = watcher
        self._clock_ms = clock_ms
        self.summary = Summary()

    def prepare(self) -> None:
        """Bring the sink into the state that the cluster's record says it is in.

        Raises:
            PipelineError, QuorateSourceError: it cannot be, or somebody else is in charge.
        """
        state = self._charge.state
        self._sink.recover(BatchId(state.commit_epoch, state.commit), self._clock_ms())
        if not state.commit_epoch:
            self._refuse_leftovers()
        if state.rewound:
            self._clear_what_was_set_back()
        self._begin_topics()

    def work(self) -> None:
        """Batches until nothing is left of what was there when it began.

        Raises:
            PipelineError, QuorateSourceError: one could not be done; those before it are.
        """
        start = self._start()
        self._watcher.planned(self._planner.waiting(start))
        while (batch := next_batch(self._planner, start)) is not None and self._moves(batch):
            self._do(batch)
            start = self._start()

    def _moves(self, batch: Batch) -> bool:
        """Whether there is anything to commit."""
        recorded = offsets_of(self._charge.state)
        return any(recorded.get(one) != end for one, end in batch.ends.items())

    def _start(self) -> StreamOffsets:
        state = self._charge.state
        topic_ids = {one.topic: one.topic_id for one in state.topics}
        return still_read(self._planner.subscription(), offsets_of(state), topic_ids)

    # -- preparing -------------------------------------------------------------------------------

    def _refuse_leftovers(self) -> None:
        """A pipeline of that name has written here, and nothing is known of how far it was."""
        if found := self._sink.own_files():
            raise SinkError(
                f"the sink holds {len(found)} files of an earlier pipeline named "
                f"{self._charge.state.name}, as {found[0].path}: remove them, choose another "
                "sink.path, or another name"
            )

    def _clear_what_was_set_back(self) -> None:
        """No rows at or above where it is, in two commits: one is killed between them at most."""
        state = self._charge.state
        present = self._sink.own_files()
        recorded = offsets_of(state)
        at = lowered(recorded, present)
        lower = {one: offset for one, offset in at.items() if offset != recorded[one]}
        if lower:
            self._require_there(lower, recorded)
            topic_ids = {one.topic: one.topic_id for one in state.topics}
            self._charge.commit(steps_between(state, lower, topic_ids), rewound=True)
        self._sink.cut(beyond(at, present))
        self._charge.commit([], rewound=False)

    def _require_there(
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
        """Where a topic begins is put down before anything is read: "latest" must not wander."""
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

    def _do(self, batch: Batch) -> None:
        self._watcher.begun(batch)
        batch_id = self._charge.next_batch
        staged: Staged | None = None
        try:
            if batch.ranges:
                self._write(batch.ranges, self._sink.staging_path(batch_id))
                staged = self._sink.staged(batch_id, batch.ranges)
                self._refuse_another_topic(batch)
                self._sink.publish(staged, self._charge.make_sure)
        except BaseException as error:
            self._abandon(staged, batch_id)
            if isinstance(error, PipelineError):
                self._blame_successor()
            raise
        self._commit(batch, staged, batch_id)
        self._sink.forget(batch_id)
        self.summary.add(batch, staged)
        self._watcher.committed(batch, 0 if staged is None else staged.rows)

    def _commit(self, batch: Batch, staged: Staged | None, batch_id: BatchId) -> None:
        """Whatever else than a clear no comes back: the next run knows what became of it."""
        steps = steps_between(self._charge.state, dict(batch.ends), dict(batch.topic_ids))
        try:
            self._charge.commit(steps, rows=0 if staged is None else staged.rows, rewound=False)
        except OutOfCharge:
            self._abandon(staged, batch_id)
            raise

    def _blame_successor(self) -> None:
        """Who has taken over has removed what this run had staged, and had its work cancelled."""
        with contextlib.suppress(ClusterUnreachable):
            self._charge.make_sure()

    def _abandon(self, staged: Staged | None, batch_id: BatchId) -> None:
        # What cannot be removed now, the next run removes.
        with contextlib.suppress(SinkError):
            self._sink.abandon(staged, batch_id)

    def _refuse_another_topic(self, batch: Batch) -> None:
        """A topic that was created anew while it was read may have given other records."""
        wanted = {one.topic_partition.topic: one.topic_id for one in batch.ranges}
        found = self._planner.topic_ids(sorted(wanted))
        for topic, topic_id in sorted(wanted.items()):
            if found.get(topic) != topic_id:
                raise PipelineError(
                    f"topic {topic} was deleted while it was read: what was read is dropped; "
                    "if it was created anew, reset the pipeline"
                )
