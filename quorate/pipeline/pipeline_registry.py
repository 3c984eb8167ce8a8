"""The offsets of a pipeline, as the cluster keeps them, and the lease of the run in charge."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from quorate.client.admin import AdminClient
from quorate.client.errors import QuorateError, RequestFailed
from quorate.client.results import NOT_BEGUN, Pipeline, PipelineStep
from quorate.common.topic_partition import TopicPartition
from quorate.pipeline.pipeline_errors import PipelineError, RunFenced
from quorate.pipeline.sink_layout import BatchId

FENCED: Final = "FENCED_MEMBER_EPOCH"

_logger = logging.getLogger(__name__)


class ActiveRun:
    """A run that may move the pipeline's offsets, until another run takes over."""

    def __init__(self, admin: AdminClient, begun: Pipeline, lease_ms: int) -> None:
        """
        Args:
            admin: the client of the cluster.
            begun: the pipeline as the cluster described it when the run began.
            lease_ms: how long the run may be silent before another one may begin.
        """
        self._admin = admin
        self._lease_ms = lease_ms
        self.state = begun
        """The pipeline after the newest write of this run."""
        self.run_epoch = begun.run_epoch
        self._commits = 0

    @property
    def next_batch(self) -> BatchId:
        """The id of the batch that is committed next."""
        return BatchId(self.run_epoch, self._commits + 1)

    def commit(self, steps: Sequence[PipelineStep], *, rows: int = 0, rewound: bool) -> None:
        """Commit all steps in one transaction, or none of them.

        Raises:
            RunFenced: another run has taken over.
            PipelineError: the commit was refused.
        """
        with _refusals_as_pipeline_errors():
            self.state = self._admin.commit_pipeline(
                self.state.name,
                run_epoch=self.run_epoch,
                number=self._commits + 1,
                steps=steps,
                rows=rows,
                lease_ms=self._lease_ms,
                rewound=rewound,
            )
        self._commits += 1

    def require_in_charge(self) -> None:
        """Ask the cluster whether this run is still in charge.

        Raises:
            RunFenced: another run has taken over.
        """
        with _refusals_as_pipeline_errors():
            self.renew(self._admin)

    def renew(self, admin: AdminClient) -> None:
        """Renew the lease. A thread that calls this brings an admin client of its own."""
        admin.renew_pipeline_run(self.state.name, run_epoch=self.run_epoch, lease_ms=self._lease_ms)

    def end(self) -> None:
        """End the lease, so that the next run need not wait. No effect if it has ended already."""
        with contextlib.suppress(RequestFailed):
            self._admin.renew_pipeline_run(self.state.name, run_epoch=self.run_epoch, lease_ms=0)


@contextlib.contextmanager
def _refusals_as_pipeline_errors() -> Iterator[None]:
    try:
        yield
    except RequestFailed as error:
        if error.error == FENCED:
            raise RunFenced(error.message) from error
        raise PipelineError(str(error)) from error


class LeaseRenewal:
    """A thread that renews the lease of a run; use it as a context manager.

    A thread is needed because Spark may work on one batch for an hour. Losing the lease does not
    stop the run by itself: the run learns from its own commits whether it is in charge. It learns
    sooner because this thread then cancels its work.
    """

    def __init__(
        self,
        charge: ActiveRun,
        admin: AdminClient,
        interval_s: float,
        cancel: Callable[[], None],
    ) -> None:
        """
        Args:
            charge: the run whose lease is renewed.
            admin: an admin client that only this thread uses.
            interval_s: the time between two renewals.
            cancel: cancels the work of the run when the lease is lost.
        """
        self._charge = charge
        self._admin = admin
        self._interval_s = interval_s
        self._cancel = cancel
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_over, name="lease", daemon=True)

    def __enter__(self) -> "LeaseRenewal":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._thread.join()

    def _renew_until_over(self) -> None:
        while not self._over.wait(self._interval_s):
            try:
                self._charge.renew(self._admin)
            except RequestFailed as error:
                _logger.warning("%s", error)
                if error.error == FENCED:
                    self._cancel()
                    return
            except QuorateError as error:
                _logger.warning("the run's lease could not be renewed: %s", error)


def offsets_of(state: Pipeline) -> dict[TopicPartition, int]:
    """Return the committed offset of every partition that the pipeline has begun."""
    return {
        TopicPartition(one.topic, number): offset
        for one in state.topics
        for number, offset in enumerate(one.offsets)
        if offset != NOT_BEGUN
    }


def steps_between(
    state: Pipeline, ends: dict[TopicPartition, int], topic_ids: dict[str, bytes]
) -> list[PipelineStep]:
    """Return the steps from the committed offsets to ``ends``, for the partitions that move."""
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
