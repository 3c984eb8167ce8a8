"""What must hold of idempotent producers (KIP-98) in what is committed of a partition."""

from quorate.broker.log.batches.record_batch import BatchHeader
from tests.sim.world import Violation


class ProducerOrder:
    """Every batch of a producer once, and in the order of its numbers, in one partition."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._next: dict[int, tuple[int, int]] = {}
        """Producer id → (epoch, next sequence)."""

    def committed(self, header: BatchHeader, who: str) -> None:
        """The next batch in the order of offsets."""
        if header.producer_id < 0:
            return
        epoch, first = header.producer_epoch, header.base_sequence
        if header.is_control:
            known = self._next.get(header.producer_id)
            if known is not None and known[0] < epoch:
                self._next[header.producer_id] = epoch, 0
            return
        known_epoch, expected = self._next.get(header.producer_id, (epoch, first))
        if epoch > known_epoch:
            known_epoch, expected = epoch, 0
        if (epoch, first) != (known_epoch, expected):
            raise Violation(
                f"{who} commits sequence {first} of producer {header.producer_id}, epoch {epoch}, "
                f"at offset {header.base_offset} of {self._name}; expected is {expected} of epoch "
                f"{known_epoch}"
            )
        self._next[header.producer_id] = epoch, first + header.record_count
