"""Snapshots of one voter: writing them in the background, sending and receiving them (P1, P11).

Takes the place of the library's ``Serializer``, which pickles, never syncs and only logs failures.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from quorum.raft.snapshot_file import (
    IncomingSnapshot,
    SnapshotCorrupt,
    SnapshotPosition,
    adopt_snapshot,
    read_chunks,
    read_head,
    read_position,
    write_snapshot,
)
from quorum.raft.transport import VoterNode

log = logging.getLogger(__name__)

SNAPSHOT_FILE: Final = "metadata.snapshot"
PIECE_BYTES: Final = 1 << 20

Piece = tuple[bytes, bool, bool]
"""(data, first, last), as the library has it."""


class Writer(Protocol):
    """Work that goes on in the background; a thread, but in simulations."""

    def is_alive(self) -> bool: ...
    def join(self) -> None: ...


def in_a_thread(work: Callable[[], None]) -> Writer:
    thread = threading.Thread(target=work, name="raft-snapshot", daemon=True)
    thread.start()
    return thread


class SnapshotStore:
    """The newest snapshot in a folder. All but the background writer on the raft thread."""

    def __init__(
        self,
        folder: Path,
        can_send: Callable[[VoterNode], bool],
        wake: Callable[[], None],
        in_background: Callable[[Callable[[], None]], Writer] = in_a_thread,
    ) -> None:
        self.path = folder / SNAPSHOT_FILE
        self._incoming = IncomingSnapshot(folder / f"{SNAPSHOT_FILE}.incoming")
        self._can_send = can_send
        self._wake = wake
        self._sending: dict[VoterNode, tuple[BinaryIO, SnapshotPosition]] = {}
        self.sent: dict[VoterNode, SnapshotPosition] = {}
        self._in_background = in_background
        self._writer: Writer | None = None
        self._written: SnapshotPosition | None = None
        self._failure: Exception | None = None
        self.received = SnapshotPosition(0, 0)
        for leftover in folder.glob(f"{SNAPSHOT_FILE}.*"):
            leftover.unlink()

    # -- on disk ---------------------------------------------------------------------------------

    def position(self) -> SnapshotPosition | None:
        """Where the snapshot on disk stands; None if there is none yet.

        Raises:
            SnapshotCorrupt: it is not a snapshot.
        """
        return read_position(self.path) if self.path.exists() else None

    def chunks(self) -> Iterable[bytes]:
        """As ``read_chunks``."""
        return read_chunks(self.path)

    # -- writing ---------------------------------------------------------------------------------

    @property
    def writing(self) -> bool:
        return self._writer is not None

    def begin_writing(self, position: SnapshotPosition, chunks: Iterable[bytes]) -> None:
        """Write a snapshot in the background; ``finished`` tells when it is durable."""

        def write() -> None:
            try:
                write_snapshot(self.path, position, chunks)
                self._written = position
            except Exception as error:  # noqa: BLE001 - handed to the raft thread, which exits
                self._failure = error
            self._wake()

        self._writer = self._in_background(write)

    def finished(self) -> SnapshotPosition | None:
        """The snapshot that has become durable since the last call, if any.

        Raises:
            Exception: what the writer failed with.
        """
        if self._writer is None or self._writer.is_alive():
            return None
        self._writer = None
        if self._failure is not None:
            raise self._failure
        written, self._written = self._written, None
        return written

    # -- the library's Serializer ----------------------------------------------------------------

    def getTransmissionData(self, node: VoterNode) -> Piece | None:
        """The next piece for a follower; None while it has enough under way."""
        if not self._can_send(node):
            return None
        is_first = node not in self._sending
        if is_first:
            if not self.path.exists():
                return None
            file: BinaryIO = self.path.open("rb")
            position = read_head(self.path, file)
            file.seek(0)
            log.info("sending snapshot %d to voter %s", position.last_index, node.id)
            self._sending[node] = (file, position)
        file, position = self._sending[node]
        data = file.read(PIECE_BYTES)
        is_last = len(data) < PIECE_BYTES
        if is_last:
            self.cancelTransmisstion(node)
            self.sent[node] = position
        return data, is_first, is_last

    def setTransmissionData(self, piece: Piece | None) -> bool:
        """Take a piece from the leader; True once a whole, checked snapshot has come.

        ``received`` then says where it stands. It takes the place of the one in the folder unless
        it is older: the journal may already begin behind that one.
        """
        if piece is None or not self._incoming.take(*piece):
            return False
        try:
            for _ in read_chunks(self._incoming.path):
                pass
        except SnapshotCorrupt:
            log.exception("the snapshot that the leader sent is refused; it will send it again")
            self._incoming.discard()
            return False
        if self._writer is not None:
            self._writer.join()
        self.received = read_position(self._incoming.path)
        own = self.position()
        if own is None or own.last_index < self.received.last_index:
            adopt_snapshot(self._incoming.path, self.path)
        return True

    def cancelTransmisstion(self, node: VoterNode) -> None:
        sending = self._sending.pop(node, None)
        if sending is not None:
            sending[0].close()

    def close(self) -> None:
        """Stop sending and receiving, and wait for the writer."""
        for node in list(self._sending):
            self.cancelTransmisstion(node)
        self._incoming.discard()
        if self._writer is not None:
            self._writer.join()
