"""Checks what clients were told against the record.

Metadata offsets are one total order of everything, so linearizability is checked exactly: each
operation has an offset; what began after another had ended has no lower one; and what was told is
what the record holds at that offset.
"""

from quorate.common.types import SessionId
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import ResultCode
from quorate.metadata_log.snapshot.snapshot import decode_snapshot
from quorate_proto.v1 import quorum_pb2 as pb
from tests.sim.record import Record
from tests.sim.service import Transacted
from tests.sim.world import Violation


class History:
    """The operations of all clients that have ended."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.floor = 0
        """The highest offset that any operation that ended had: those that begin now come after."""
        self.writes = 0
        self.effects = 0
        """Writes that were not refused."""
        self.reads = 0

    def wrote(self, who: str, key: tuple[SessionId, int], floor: int, told: Transacted) -> None:
        """A client was told the result of its transaction."""
        result = told.result
        assert result is not None
        codes = {one.code for one in result.results}
        if codes & {ResultCode.OUTCOME_UNKNOWN, ResultCode.SESSION_GONE}:
            return
        recorded = self.record.entries.get(result.offset)
        if recorded is None or recorded.result != result:
            raise Violation(f"{who} was told {result}; the committed log does not say so")
        took_effect_at = self.record.effects.get(key)
        if took_effect_at != (result.offset if result.ok else None):
            raise Violation(f"{who} was told {result}, but it took effect at {took_effect_at}")
        if result.offset <= floor:
            raise Violation(
                f"{who} began after offset {floor} was seen, yet it took effect at {result.offset}"
            )
        self.floor = max(self.floor, result.offset)
        self.writes += 1
        self.effects += result.ok

    def read(self, who: str, floor: int, response: pb.ReadResponse) -> Image:
        """A client was told the whole state, which this returns."""
        image = decode_snapshot([response.snapshot])
        if image.offset < floor:
            raise Violation(
                f"{who}: stale read at offset {image.offset}, {floor} was seen before it began"
            )
        if self.record.images.get(image.offset) != image:
            raise Violation(f"{who} read a state at {image.offset} that never was")
        self.floor = max(self.floor, image.offset)
        self.reads += 1
        return image
