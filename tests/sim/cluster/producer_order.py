"""Checks idempotent producers (KIP-98) in what is committed of a partition."""

import re
from typing import Final

from quorate.broker.log.batches.record_batch import BatchHeader
from tests.sim.world import Violation

VALUE: Final = re.compile(rb"<\d+\.\d+>")
"""The pattern of a value that a producer writes once, as ``producers`` makes it."""


class ProducerOrder:
    """Every batch of a producer once, and in the order of its numbers, in one partition."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._next: dict[int, tuple[int, int]] = {}
        """Producer id → (epoch, next sequence)."""
        self._last_offsets: dict[int, int] = {}
        """Producer id → the offset of its last batch."""
        self._values: dict[bytes, int] = {}
        """Offsets of what only one batch may hold."""

    def committed(
        self, header: BatchHeader, batch: bytes, who: str, retained_from: int = 0
    ) -> None:
        """The next batch in the order of offsets.

        A replica that was built anew after retention had deleted the last batches of a producer,
        below ``retained_from``, does not know the producer. It takes any batch from it, as in
        Kafka.
        """
        if header.producer_id < 0:
            return
        if self._last_offsets.get(header.producer_id, retained_from) < retained_from:
            self._next.pop(header.producer_id, None)
        self._last_offsets[header.producer_id] = header.base_offset
        if not header.is_control:
            self._is_there_once(header, batch, who, retained_from)
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

    def _is_there_once(
        self, header: BatchHeader, batch: bytes, who: str, retained_from: int
    ) -> None:
        """Whatever epoch and sequence it has: nobody was told to send it again."""
        for value in VALUE.findall(batch):
            earlier = self._values.setdefault(value, header.base_offset)
            if earlier < retained_from:
                self._values[value] = header.base_offset
            elif earlier != header.base_offset:
                raise Violation(
                    f"{who} commits {value!r} of producer {header.producer_id} at offset "
                    f"{header.base_offset} of {self._name}; it is there at {earlier} already"
                )
