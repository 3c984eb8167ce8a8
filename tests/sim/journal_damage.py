"""A damaged journal: the product reads the bytes that it would find, some of them changed.

The simulated disk keeps entries as they are. When its journal is damaged, they are put into the
bytes that the product writes, which are damaged, and read back by the product.
"""

from pathlib import Path
from typing import Final

from quorate.quorum.raft.storage.journal import Meta, RaftEntry, Stored
from quorate.quorum.raft.storage.journal_content import (
    check_entries,
    decode_meta,
    encode_meta,
    joined,
    run_of,
)
from quorate.quorum.raft.storage.journal_runs import encode_run
from tests.sim.world import World

_PATH: Final = Path("/data/journal.lmdb")
_RUN: Final = 3
"""Entries per run."""

KINDS: Final = ("entry", "entry", "meta", "missing", "cut off", "twice")


class JournalDamage:
    """One piece of damage, drawn by chance."""

    def __init__(self, world: World) -> None:
        self.kind = world.random.choice(KINDS)
        self.passes_for_whole = False
        """Whether the product has read something else than was written, and did not refuse it."""
        self._random = world.random

    def read(self, meta: Meta, entries: list[RaftEntry]) -> Stored:
        """Return what the product makes of the damaged journal.

        Raises:
            JournalCorrupt: it refuses it.
        """
        runs = [entries[at : at + _RUN] for at in range(0, len(entries), _RUN)]
        rows = [(run[0][1], encode_run(run)) for run in runs]
        raw = encode_meta(meta, entries[-1][1], written_by=1)
        at = self._random.randrange(len(rows))
        match self.kind:
            case "entry":
                rows[at] = (rows[at][0], self._flipped(rows[at][1]))
            case "meta":
                raw = self._flipped(raw)
            case "missing":
                del rows[at]
            case "cut off":
                del rows[-1]
            case "twice":
                rows.insert(at, rows[at])
        found = decode_meta(_PATH, raw)
        read = list(joined(_PATH, (run_of(_PATH, *row) for row in rows), found.meta.first))
        check_entries(_PATH, read, found.meta.first, found.last)
        self.passes_for_whole = (found.meta, read) != (meta, entries)
        return Stored(found.meta, read, found.meta.first)

    def _flipped(self, value: bytes) -> bytes:
        bit = self._random.randrange(8 * len(value))
        flipped = bytearray(value)
        flipped[bit // 8] ^= 1 << bit % 8
        return bytes(flipped)
