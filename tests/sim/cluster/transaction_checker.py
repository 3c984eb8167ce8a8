"""Looks at what every replica makes of its transactions, whenever its log has changed."""

from quorate.broker.log import PartitionLog
from quorate.broker.log.batches.record_batch import iterate_batches
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from tests.sim.cluster.transaction_replay import Replay
from tests.sim.cluster.transaction_truth import check_stable_offset
from tests.sim.world import Violation


class ReplicaTransactions:
    """Compares what a process knows of one replica's transactions with a replay of its batches.

    A log that was cut is read anew; else what is new in it.
    """

    __slots__ = ("_aborted", "_cuts", "_epoch", "_replay", "_seen", "_stable")

    def __init__(self) -> None:
        self._replay = Replay()
        self._cuts = -1
        self._aborted = -1
        self._seen = (-1, -1, -1)
        self._stable = -1
        self._epoch: int | None = None
        """The leader epoch in which ``_stable`` was seen at a leader."""

    def look(self, hosted: HostedPartition, broker_id: int) -> None:
        """Raises ``Violation``."""
        log, high_watermark = hosted.log, hosted.replica.high_watermark
        stable = hosted.last_stable_offset
        epoch = int(hosted.replica.leader_epoch) if hosted.leads else None
        seen = (log.log_end_offset, high_watermark, stable)
        if seen == self._seen and epoch == self._epoch and log.truncations == self._cuts:
            return
        role = hosted.replica.role.name.lower()
        who = f"broker {broker_id} ({role}, epoch {hosted.replica.leader_epoch})"
        before = self._stable if epoch is not None and epoch == self._epoch else None
        readable = max(high_watermark, log.log_start_offset)
        check_stable_offset(stable, before, readable, who, str(hosted.tp))
        is_cut = self._take_in(log)
        found = self._compare(hosted, in_full=is_cut or epoch != self._epoch)
        if found:
            raise Violation(f"{who}, {hosted.tp}: {found}")
        self._seen, self._stable, self._epoch = seen, stable, epoch

    def compare_in_full(self, hosted: HostedPartition, broker_id: int) -> None:
        """Compare everything, once nothing happens any more."""
        self._take_in(hosted.log)
        found = self._compare(hosted, in_full=True)
        if found:
            raise Violation(f"broker {broker_id}, {hosted.tp}: {found}")

    def _take_in(self, log: PartitionLog) -> bool:
        """Whether it was read anew."""
        is_cut = log.truncations != self._cuts
        if is_cut:
            is_whole = self._cuts < 0 and log.truncations == 0 and log.log_start_offset == 0
            self._replay = Replay(log.log_start_offset, is_whole=is_whole)
            self._cuts = log.truncations
        begin = max(self._replay.end_offset, log.log_start_offset)
        if begin < log.log_end_offset:
            read = log.read(begin, 1 << 30, log.log_end_offset)
            for header, batch in iterate_batches(b"".join(read.chunks), "a replica"):
                self._replay.add(header, batch)
        return is_cut

    def _compare(self, hosted: HostedPartition, *, in_full: bool) -> str:
        log, replay = hosted.log, self._replay
        found = replay.compare_stable_offset(
            hosted.last_stable_offset, hosted.replica.high_watermark, log.log_start_offset
        )
        aborted = len(log.transactions.aborted(log.log_start_offset, log.log_end_offset))
        if found or not (in_full or aborted != self._aborted):
            return found
        self._aborted = aborted
        return replay.compare_transactions(
            log.transactions, log.log_start_offset
        ) or replay.compare_producers(log.producers)
