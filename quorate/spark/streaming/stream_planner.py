"""Plans the micro-batches of a stream on the driver.

It asks the cluster, decides by `micro_batch_planning`, and fails the query if records are lost. One
planner lives as long as its query, and keeps its connections.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from quorate.spark.committing.stream_commits import StreamCommits
from quorate.spark.errors import ClusterUnavailable, DataLoss, RangeUnavailable
from quorate.spark.offset_ranges import OffsetRange
from quorate.spark.options.read_options import StreamOptions
from quorate.spark.options.topic_subscription import Subscription
from quorate.spark.reading.offset_resolver import (
    OffsetResolver,
    known_topics,
    list_offsets,
    offset_questions,
)
from quorate.spark.reading.range_planning import (
    check_partitions_named,
    select_partitions,
    split_ranges,
)
from quorate.spark.streaming.log_view import LogView, exactly, observe
from quorate.spark.streaming.micro_batch_planning import (
    Loss,
    begin_next_batch,
    is_due,
    missing_from_subscription,
    next_offsets,
    plan_batch,
    waiting_offsets,
)
from quorate.spark.streaming.stream_checkpoint import StreamOffsets, batch_start

if TYPE_CHECKING:
    from quorate.spark.cluster_client import ClusterClient

LOSSES_NAMED_MAX = 5
IDLE_SECONDS = 0.1
"""The time for which the planner assumes that nothing is new after it found nothing.
Spark's default trigger asks every 10 ms."""

_logger = logging.getLogger(__name__)


class StreamPlanner:
    """Decides where micro-batches begin and end; close it."""

    def __init__(
        self,
        options: StreamOptions,
        monotonic: Callable[[], float] = time.monotonic,
        commits: StreamCommits | None = None,
    ) -> None:
        """
        Args:
            options: the options of the query.
            monotonic: a clock in seconds.
            commits: commits the progress to a consumer group; closed with the planner.
        """
        self._options = options.reading
        self._limits = options.limits
        self._monotonic = monotonic
        self._commits = commits
        self._opened: ClusterClient | None = None
        self._last_batch: float | None = None
        self._last_view: LogView | None = None
        self._idle_since: tuple[StreamOffsets, float] | None = None
        self._up_to_here = False
        self._target: LogView | None = None

    def close(self) -> None:
        """Close all connections."""
        if self._commits is not None:
            self._commits.close()
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def initial(self, now_ms: int) -> StreamOffsets:
        """Return the offsets at which a new query begins.

        Raises:
            QuorateSourceError: something that the query names does not exist, or no broker answers.
        """
        options = self._options
        topics = known_topics(self._cluster, options.subscription)
        partitions = select_partitions(options.subscription, topics)
        check_partitions_named(partitions, options)
        questions = offset_questions(partitions, now_ms, options.starting)
        resolver = OffsetResolver(list_offsets(self._cluster, questions), now_ms)
        offsets = {}
        for partition in partitions:
            first, behind_last = resolver.edges(partition)
            offset = resolver.resolve(
                options.starting.at(partition),
                partition,
                absent_is_latest=options.absent_start_is_latest,
            )
            if not first <= offset <= behind_last:
                self._refuse_start(
                    f"offset {offset} of topic {partition.topic} partition {partition.partition}, "
                    f"where the query is to start, is not available: the log holds "
                    f"[{first}, {behind_last})"
                )
            offsets[partition] = min(max(offset, first), behind_last)
        ids = {partition.topic: topics[partition.topic].topic_id for partition in partitions}
        initial = StreamOffsets(offsets, ids, initial=True)
        if self._commits is not None:
            self._commits.check(initial)
        return initial

    def done(self, offsets: StreamOffsets) -> None:
        """Note that everything below was read and its results are stored; commit it to the group.

        Raises:
            CallRefused: the group has live members, or the user may not read it or a topic.
        """
        if self._commits is not None and not offsets.initial:
            self._commits.reached(offsets)

    def stop_at_what_is_there(self) -> None:
        """Plan only up to the ends that the logs have at the next look at the cluster."""
        self._up_to_here = True

    def next(
        self, start: StreamOffsets, *, limited: bool, at_most: int | None = None
    ) -> StreamOffsets:
        """Return the end of the batch that begins at ``start``, or ``start`` if there is none.

        A caller that asks has done everything up to ``start``.

        Args:
            start: where the batch begins.
            limited: False if no limits apply to the batch.
            at_most: the largest number of offsets; None takes it from the options.

        Raises:
            DataLoss: records that were still to be read are gone (and failOnDataLoss is on).
            ClusterUnavailable: no broker answers within the retries.
            CallRefused: as in `done`.
        """
        self.done(start)
        if self._is_idle_at(start):
            return start
        view = self._target or self._look_ahead(start)
        if self._up_to_here:
            self._target = view
        self._last_view = view
        step = begin_next_batch(start, view)
        if limited and self._target is None:
            waited_ms = self._waited_ms()
            if not is_due(sum(waiting_offsets(step, view).values()), self._limits, waited_ms):
                self._idle_since = (start, self._monotonic())
                return start
        at_most = (at_most or self._limits.at_most) if limited else None
        end = next_offsets(start, step, view, at_most=at_most)
        if end is start:
            self._idle_since = (start, self._monotonic())
        else:
            self._last_batch = self._monotonic()
        return end

    def ranges(self, start: StreamOffsets, end: StreamOffsets) -> list[OffsetRange]:
        """Return the ranges of the batch from ``start`` to ``end``.

        Raises:
            DataLoss: some of the records are gone (and failOnDataLoss is on).
            ClusterUnavailable: no broker answers within the retries.
        """
        start = batch_start(start, end)
        if start.offsets == end.offsets and start.topic_ids == end.topic_ids:
            return []
        view = self._settled(exactly(end.offsets), lambda view: plan_batch(start, end, view)[1])
        ranges, _ = plan_batch(start, end, view)
        return split_ranges(
            ranges,
            min_ranges=self._options.min_partitions,
            max_size=self._options.max_records_per_partition,
        )

    def latest_seen(self) -> StreamOffsets | None:
        """Return the ends of the logs at the last look; None before the first look."""
        return self._last_view.ends() if self._last_view else None

    @property
    def _cluster(self) -> "ClusterClient":
        if self._opened is None:
            self._opened = self._options.connection.open()
        return self._opened

    def _is_idle_at(self, start: StreamOffsets) -> bool:
        if self._idle_since is None or self._idle_since[0] != start:
            return False
        return self._monotonic() - self._idle_since[1] < IDLE_SECONDS

    def _waited_ms(self) -> int | None:
        if self._last_batch is None:
            return None
        return round((self._monotonic() - self._last_batch) * 1000)

    def _look_ahead(self, start: StreamOffsets) -> LogView:
        def judge(view: LogView) -> Sequence[Loss]:
            losses = begin_next_batch(start, view).losses
            # What never was there is no loss: if losses are passed over, it is waited for.
            return [*losses, *missing_from_subscription(start, view)] if self._fails else losses

        return self._settled(self._options.subscription, judge)

    def _settled(
        self, subscription: Subscription, judge: Callable[[LogView], Sequence[Loss]]
    ) -> LogView:
        """Look at the logs until nothing is missing, or until the loss of records is certain."""
        retries = self._options.connection.retry_policy.new_retries()
        while True:
            view = observe(self._cluster, subscription)
            losses = judge(view)
            if not losses:
                return view
            if any(loss.may_heal for loss in losses):
                try:
                    retries.pause("looking for what the stream reads", losses[0].what)
                except ClusterUnavailable:
                    pass
                else:
                    continue
            self._refuse(losses)
            return view

    @property
    def _fails(self) -> bool:
        return self._options.fail_on_data_loss

    def _refuse(self, losses: Sequence[Loss]) -> None:
        message = "; ".join(loss.what for loss in losses[:LOSSES_NAMED_MAX])
        if len(losses) > LOSSES_NAMED_MAX:
            message += f"; and {len(losses) - LOSSES_NAMED_MAX} more"
        if self._fails:
            raise DataLoss(
                f"records that the stream had still to read are gone: {message}. "
                "Set failOnDataLoss=false to go on with what is there"
            )
        _logger.warning("%s; going on with what is there (failOnDataLoss=false)", message)

    def _refuse_start(self, refusal: str) -> None:
        if self._fails:
            raise RangeUnavailable(
                f"{refusal}. Choose offsets within it, or set failOnDataLoss=false"
            )
        _logger.warning("%s; starting at the nearest (failOnDataLoss=false)", refusal)
