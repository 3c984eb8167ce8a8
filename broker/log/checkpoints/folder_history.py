"""The history that a log folder keeps of itself, so that an old copy of it is noticed (rule 8).

The quorum knows the incarnation of this broker that was registered last, and how far its folder
was. A folder that does not know that incarnation was put back, or has lost its last minutes.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

INCARNATIONS_MAX: Final = 16
"""The number of newest incarnations that a folder knows. One is enough while every start ends in a
registration; the others are starts that did not."""


class FolderHistory(msgspec.Struct, frozen=True, array_like=True):
    """The history of one log folder."""

    incarnations: tuple[bytes, ...] = ()
    """The ids of the newest incarnations that opened this folder, the newest last. Each is written
    before that incarnation registers."""
    hosted_through: int = 0
    """A metadata offset: every partition that was assigned to this broker up to there had a log
    here. 0 means that it is not known yet."""
    lost: tuple[tuple[bytes, int], ...] = ()
    """The partitions, as topic id and number, that are declared lost until a controller has removed
    them from their ISRs."""

    strays: tuple[tuple[bytes, int], ...] = ()
    """The partitions, as topic id and number, that the quorum does not know. Their logs are kept
    until an operator restores or deletes them (rule 7)."""

    def with_incarnation(self, incarnation_id: bytes) -> "FolderHistory":
        """Return the history once this incarnation has opened the folder."""
        known = tuple(one for one in self.incarnations if one != incarnation_id)
        newest = (*known, incarnation_id)[-INCARNATIONS_MAX:]
        return msgspec.structs.replace(self, incarnations=newest)

    def with_hosted_through(self, offset: int) -> "FolderHistory":
        """Return the history once all partitions assigned up to ``offset`` have logs."""
        return msgspec.structs.replace(self, hosted_through=max(self.hosted_through, offset))

    def with_lost(self, partitions: Iterable[tuple[bytes, int]]) -> "FolderHistory":
        """Return the history with exactly these lost partitions."""
        return msgspec.structs.replace(self, lost=tuple(sorted(partitions)))

    def with_strays(self, partitions: Iterable[tuple[bytes, int]]) -> "FolderHistory":
        """Return the history with exactly these strays."""
        return msgspec.structs.replace(self, strays=tuple(sorted(partitions)))
