"""Checks at the end of every tick of a voter that what Raft and its guards promise still holds.

They cost a few comparisons. One that fails shows an error of the program or of the machine's
memory. So the voter stops at once, before it sends anything that follows from it. What it
acknowledged before is on its disk.
"""

from collections.abc import Sequence
from typing import NamedTuple


class InvariantBroken(RuntimeError):
    """The voter is in a state that must not exist; the message says which, and what to do."""


class Progress(NamedTuple):
    """The progress of a voter."""

    term: int
    commit_index: int
    last_applied: int
    durable_index: int
    """The last entry of its own log that is on its disk."""
    snapshot_index: int
    """The last entry in its newest snapshot, or 0."""


class ProgressCheck:
    """Compares the progress of a voter with what it was, and its parts with each other."""

    def __init__(self, voter_id: int) -> None:
        self._voter_id = voter_id
        self._before = Progress(0, 0, 0, 0, 0)

    def check(self, now: Progress) -> None:
        """Check the progress at the end of a tick.

        Raises:
            InvariantBroken: names what is broken, with the values.
        """
        before, self._before = self._before, now
        if now.term < before.term:
            self._broken(f"its term went from {before.term} back to {now.term}")
        if now.commit_index < before.commit_index:
            self._broken(
                f"its commit index went from {before.commit_index} back to {now.commit_index}"
            )
        if now.last_applied < before.last_applied:
            self._broken(f"it had applied {before.last_applied}, and now {now.last_applied}")
        if now.last_applied > now.commit_index:
            self._broken(
                f"it has applied {now.last_applied}, but only {now.commit_index} is committed"
            )
        if now.snapshot_index > now.commit_index:
            self._broken(
                f"its snapshot ends at {now.snapshot_index}, but only {now.commit_index} is "
                "committed"
            )
        if now.commit_index > now.durable_index:
            self._broken(
                f"{now.commit_index} is committed, but its own log is on disk up to "
                f"{now.durable_index} only"
            )

    def check_majority(self, commit_index: int, ends: Sequence[int]) -> None:
        """Check a commit index that this leader has moved. ``ends`` has for each voter where its
        log on disk ends, as far as the leader knows.

        Raises:
            InvariantBroken: it is not on the disks of a majority.
        """
        holders = sum([end >= commit_index for end in ends])
        if 2 * holders <= len(ends):
            self._broken(
                f"it takes {commit_index} for committed, which {holders} of {len(ends)} voters have"
            )

    def _broken(self, what: str) -> None:
        raise InvariantBroken(
            f"voter {self._voter_id} stops, because {what}. This is an error of the program or of "
            "this machine's memory, not of its data: start the voter again, and report the error"
        )
