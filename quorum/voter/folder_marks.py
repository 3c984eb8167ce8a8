"""The marks of brokers' log folders that came with keep-alives, and which of them to note (rule 8).

A broker writes a mark to its folder every few seconds while it writes anything, and then sends the
mark with its keep-alives. The leader of the quorum notes the marks of all brokers in one
transaction, and none while nothing is written. Keep-alives are soft state: the next leader hears
the marks again.
"""

from collections.abc import Mapping
from typing import Final

from quorate.common.types import SessionId
from quorate.metadata_log.features import BROKER_HISTORY
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import FolderMark

NOTE_EVERY_MS: Final = 5_000


def marks_to_note(image: Image, heard: Mapping[SessionId, int]) -> tuple[FolderMark, ...]:
    """Return the marks that are higher than what ``image`` knows of the incarnation they are of."""
    if image.metadata_version < BROKER_HISTORY:
        return ()
    marks = []
    for broker_id, broker in image.brokers.items():
        registration = broker.registration
        mark = heard.get(registration.session_id, 0)
        known = image.histories.get(broker_id)
        is_same = known is not None and known.incarnation_id == registration.incarnation_id
        if mark > (known.mark if known is not None and is_same else 0):
            marks.append(FolderMark(session_id=registration.session_id, mark=mark))
    return tuple(marks)


class FolderMarks:
    """The marks that one leader has heard."""

    def __init__(self) -> None:
        self._heard: dict[SessionId, int] = {}
        self._note_at_ms = 0.0

    def hear(self, session_id: SessionId, mark: int) -> None:
        """Take the mark that came with a keep-alive of an open session. 0 says nothing."""
        if mark > 0:
            self._heard[session_id] = mark

    def due(self, image: Image, now_ms: float) -> tuple[FolderMark, ...]:
        """Return the marks to note now; none while it is not time to look."""
        if now_ms < self._note_at_ms:
            return ()
        self._note_at_ms = now_ms + NOTE_EVERY_MS
        self._heard = {one: mark for one, mark in self._heard.items() if one in image.sessions}
        return marks_to_note(image, self._heard)
