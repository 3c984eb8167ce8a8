"""What must hold of idempotent producers (KIP-98) in what is committed of a partition."""

import re
from typing import Final

from quorate.broker.log.batches.record_batch import BatchHeader
from tests.sim.world import Violation

VALUE: Final = re.compile(rb"<\d+\.\d+>")
"""What a producer writes once, as ``producers`` makes it."""


class ProducerOrder:
    """Every batch of a producer once, and in the order of its numbers, in one partition."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._next: dict[int, tuple[int, int]] = {}
        """Producer id → (epoch, next sequence)."""
        self._values: dict[bytes, int] = {}
        """Offsets of what only one batch may hold."""

    def committed(self, header: BatchHeader, batch: bytes, who: str) -> None:
        """The next batch in the order of offsets."""
        if header.producer_id < 0:
            return
        if not header.is_control:
            self._is_there_once(header, batch, who)
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

    def _is_there_once(self, header: BatchHeader, batch: bytes, who: str) -> None:
        """Whatever epoch and sequence it has: nobody was told to send it again."""
        for value in VALUE.findall(batch):
            earlier = self._values.setdefault(value, header.base_offset)
            if earlier != header.base_offset:
                raise Violation(
                    f"{who} commits {value!r} of producer {header.producer_id} at offset "
                    f"{header.base_offset} of {self._name}; it is there at {earlier} already"
                )
