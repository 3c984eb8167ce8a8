"""Keeps what was committed: per partition, every batch that was below a leader's high watermark."""

from quorate.broker.log.batches.record_batch import read_header
from quorate.common.types import LeaderEpoch, TopicIdPartition
from tests.sim.cluster.producer_order import ProducerOrder
from tests.sim.cluster.transaction_truth import CommittedTransactions, Outcomes
from tests.sim.world import Violation


class Truth:
    """The committed batches of one partition, in order.

    ``lossy_from``: the first leader epoch after an unclean election, which may lose what was
    committed: what leaders of older epochs say from then on is of no account.
    """

    def __init__(self, tip: TopicIdPartition, name: str, outcomes: Outcomes) -> None:
        self.tip = tip
        self.name = name
        self.end = 0
        self.start = 0
        self.retained_from = 0
        """The highest log start that a broker has chosen by retention while it believed that it
        leads."""
        self.lossy_from = LeaderEpoch(-1)
        self._forgotten_for = LeaderEpoch(-1)
        """The unclean election whose loss is taken into account."""
        self._batches: dict[int, bytes] = {}
        self._ends: dict[int, int] = {}
        self._producers = ProducerOrder(name)
        self.transactions = CommittedTransactions(name, outcomes)

    @property
    def is_lossy(self) -> bool:
        """Whether there was an unclean election."""
        return self.lossy_from >= 0

    def covers(self, leader_epoch: int) -> bool:
        """Whether a leader or follower of that epoch is held to it."""
        return leader_epoch >= self.lossy_from

    @property
    def has_loss_to_forget(self) -> bool:
        """Whether no leader has been seen yet since the newest unclean election.

        What the first one lacks is lost. It need not lead in the epoch of that election: it may
        have been told of a newer one first.
        """
        return self.lossy_from != self._forgotten_for

    def end_by(self, leader_epoch: int) -> int:
        """End of what leaders of this epoch and of older ones have committed.

        Who was stopped may take up a leadership that is over: newer leaders went on without it.
        """
        committed = (end for epoch, end in self._ends.items() if epoch <= leader_epoch)
        return min(self.end, max(committed, default=0))

    def batch_at(self, base_offset: int) -> bytes | None:
        return self._batches.get(base_offset)

    def check(self, batch: bytes, who: str) -> None:
        """``who`` has this batch below its high watermark."""
        header = read_header(batch)
        known = self._batches.get(header.base_offset)
        if known is None:
            raise Violation(
                f"{who} has a batch at offset {header.base_offset} of {self.name} below its high "
                f"watermark that was never committed (committed: [0, {self.end}))"
            )
        if known != batch:
            raise Violation(
                f"{who} has another batch at offset {header.base_offset} of {self.name} (leader "
                f"epoch {header.leader_epoch}) than was committed (leader epoch "
                f"{read_header(known).leader_epoch})"
            )

    def extend(self, batch: bytes, who: str, leader_epoch: int) -> None:
        """The high watermark of the leader of that epoch has passed this batch."""
        header = read_header(batch)
        if header.base_offset < self.end:
            self.check(batch, who)
        elif header.base_offset != self.end:
            raise Violation(f"{who} commits offset {header.base_offset} of {self.name} after a gap")
        else:
            if not self.is_lossy:
                self._producers.committed(header, batch, who, self.retained_from)
                self.transactions.add(header, batch, who)
            self._batches[header.base_offset] = batch
            self.end = header.last_offset + 1
        self._ends[leader_epoch] = max(self._ends.get(leader_epoch, 0), header.last_offset + 1)

    def batches(self, from_offset: int) -> list[bytes]:
        """Return the batches that end beyond ``from_offset``."""
        return [
            batch
            for batch in self._batches.values()
            if read_header(batch).last_offset >= from_offset
        ]

    def forget_from(self, offset: int) -> None:
        """The first leader since the newest unclean election does not have the rest."""
        self._forgotten_for = self.lossy_from
        for base in [base for base in self._batches if base >= offset]:
            del self._batches[base]
        self.end = min(self.end, offset)
