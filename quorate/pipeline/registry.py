"""How far the pipeline is, as the cluster keeps it; and the right of one run to move it."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from quorate.client.errors import RequestFailed
from quorate.client.results import NOT_BEGUN, Pipeline, PipelineStep
from quorate.pipeline.errors import OutOfCharge, PipelineError
from quorate.pipeline.layout import BatchId
from quorate.spark.ranges import TopicPartition

FENCED: Final = "FENCED_MEMBER_EPOCH"


class Keeper(Protocol):
    """What of the admin client it takes; raises ``RequestFailed``, ``ClusterUnreachable``."""

    def begin_pipeline_run(
        self, name: str, *, owner: str, lease_ms: int, sink: str, take_over: bool = False
    ) -> Pipeline: ...

    def commit_pipeline(
        self,
        name: str,
        *,
        run_epoch: int,
        number: int,
        steps: Sequence[PipelineStep],
        rows: int = 0,
        lease_ms: int,
        rewound: bool = False,
    ) -> Pipeline: ...

    def renew_pipeline_run(self, name: str, *, run_epoch: int, lease_ms: int) -> Pipeline: ...


class RunInCharge:
    """A run that has begun. ``state``: the pipeline as of its own newest write."""

    def __init__(self, keeper: Keeper, begun: Pipeline, lease_ms: int) -> None:
        self._keeper = keeper
        self._lease_ms = lease_ms
        self.state = begun
        self.run_epoch = begun.run_epoch
        self._commits = 0

    @property
    def next_batch(self) -> BatchId:
        return BatchId(self.run_epoch, self._commits + 1)

    def commit(self, steps: Sequence[PipelineStep], *, rows: int = 0, rewound: bool) -> None:
        """All steps, or none.

        Raises:
            OutOfCharge: another run has taken over.
            PipelineError: it was refused, or nobody can say what became of it.
        """
        self.state = self._in_charge(
            lambda: self._keeper.commit_pipeline(
                self.state.name,
                run_epoch=self.run_epoch,
                number=self._commits + 1,
                steps=steps,
                rows=rows,
                lease_ms=self._lease_ms,
                rewound=rewound,
            )
        )
        self._commits += 1

    def make_sure(self) -> None:
        """That it is still in charge, as of now.

        Raises:
            OutOfCharge: it is not.
        """
        self._in_charge(lambda: self.renew(self._keeper))

    def renew(self, keeper: Keeper) -> Pipeline:
        """A sign of life; by a keeper of one's own, from another thread."""
        return keeper.renew_pipeline_run(
            self.state.name, run_epoch=self.run_epoch, lease_ms=self._lease_ms
        )

    def end(self) -> None:
        """So that nobody has to wait for the lease. Without effect if it is over already."""
        with contextlib.suppress(RequestFailed):
            self._keeper.renew_pipeline_run(self.state.name, run_epoch=self.run_epoch, lease_ms=0)

    def _in_charge(self, ask: Callable[[], Pipeline]) -> Pipeline:
        try:
            return ask()
        except RequestFailed as error:
            if error.error == FENCED:
                raise OutOfCharge(error.message) from error
            raise PipelineError(str(error)) from error


def offsets_of(state: Pipeline) -> dict[TopicPartition, int]:
    """Of the partitions that have begun."""
    return {
        TopicPartition(one.topic, number): offset
        for one in state.topics
        for number, offset in enumerate(one.offsets)
        if offset != NOT_BEGUN
    }


def steps_between(
    state: Pipeline, ends: dict[TopicPartition, int], topic_ids: dict[str, bytes]
) -> list[PipelineStep]:
    """From where the pipeline is to ``ends``; partitions that do not move are left out."""
    before = offsets_of(state)
    return [
        PipelineStep(
            topic=partition.topic,
            topic_id=topic_ids[partition.topic],
            partition=partition.partition,
            start=before.get(partition, NOT_BEGUN),
            end=end,
        )
        for partition, end in sorted(ends.items())
        if before.get(partition) != end
    ]
