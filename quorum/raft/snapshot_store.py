"""Snapshots of one voter: written in the background, sent and received (P1, P11).

It takes the place of the library's ``Serializer``, which pickles, never syncs and only logs
failures. Encoding, decoding and syncing 200,000 partitions takes longer than the raft thread may be
silent, so both directions run in the background, which gives way to the raft thread after every
chunk.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Protocol

from quorate.quorum.raft.network.transport import VoterNode
from quorate.quorum.raft.storage.snapshot_file import (
    IncomingSnapshot,
    SnapshotCorrupt,
    SnapshotPosition,
    adopt_snapshot,
    naming_errors,
    read_chunks,
    read_head,
    read_position,
    sync_file,
    write_snapshot,
)

log = logging.getLogger(__name__)

SNAPSHOT_FILE: Final = "metadata.snapshot"
PIECE_BYTES: Final = 1 << 20

Piece = tuple[bytes, bool, bool]
"""(data, first, last), as the library has it."""


_GIVE_WAY_S: Final = 0.0005


class Background(Protocol):
    """Runs work in the background: in a thread, except in simulations."""

    def is_alive(self) -> bool: ...
    def join(self) -> None: ...


class Received(NamedTuple):
    """A complete snapshot from the leader, checked and decoded."""

    position: SnapshotPosition
    state: Any


def give_way() -> None:
    """Let another thread have the interpreter: without a sleep it gets it after 5 ms at best."""
    time.sleep(_GIVE_WAY_S)


def in_a_thread(work: Callable[[], None]) -> Background:
    thread = threading.Thread(target=work, name="raft-snapshot", daemon=True)
    thread.start()
    return thread


class SnapshotStore:
    """The newest snapshot in a folder. Use it on the raft thread; only background work runs
    elsewhere.
    """

    def __init__(
        self,
        folder: Path,
        can_send: Callable[[VoterNode], bool],
        wake: Callable[[], None],
        decode: Callable[[Iterable[bytes]], Any],
        in_background: Callable[[Callable[[], None]], Background] = in_a_thread,
        give_way: Callable[[], None] = give_way,
    ) -> None:
        """Create the store. ``decode`` makes a state of a snapshot's chunks, in the background."""
        self.path = folder / SNAPSHOT_FILE
        self._incoming = IncomingSnapshot(folder / f"{SNAPSHOT_FILE}.incoming")
        self._can_send = can_send
        self._wake = wake
        self._decode = decode
        self._in_background = in_background
        self._give_way = give_way
        self._sending: dict[VoterNode, tuple[BinaryIO, SnapshotPosition]] = {}
        self.sent: dict[VoterNode, SnapshotPosition] = {}
        self.on_waiting: Callable[[VoterNode], None] = lambda _node: None
        """Called when a follower needs a piece that cannot go now."""
        self.on_adopting: Callable[[int], None] = lambda _index: None
        """Called with the index of the leader's snapshot before it takes its name in the folder."""
        self._writer: Background | None = None
        self._written: SnapshotPosition | None = None
        self._checker: Background | None = None
        self._checked: Received | None = None
        self._failure: Exception | None = None
        for leftover in folder.glob(f"{SNAPSHOT_FILE}.*"):
            leftover.unlink()

    # -- on disk ---------------------------------------------------------------------------------

    def position(self) -> SnapshotPosition | None:
        """Return the position of the snapshot on disk, or None if there is none yet.

        Raises:
            SnapshotError: it is not a snapshot, or cannot be read.
        """
        with naming_errors("read", self.path):
            return read_position(self.path) if self.path.exists() else None

    def chunks(self) -> Iterable[bytes]:
        """Return the chunks of the snapshot on disk, as ``read_chunks`` does."""
        return read_chunks(self.path)

    # -- writing ---------------------------------------------------------------------------------

    @property
    def writing(self) -> bool:
        return self._writer is not None

    @property
    def busy(self) -> bool:
        """Whether something runs in the background; there is one thing at a time."""
        return self.writing or self.checking

    def begin_writing(self, position: SnapshotPosition, chunks: Iterable[bytes]) -> None:
        """Write a snapshot in the background; ``finished`` tells when it is durable."""

        def write() -> None:
            try:
                write_snapshot(self.path, position, self._giving_way(chunks))
                self._written = position
            except Exception as error:  # noqa: BLE001 - handed to the raft thread, which exits
                self._failure = error
            self._wake()

        self._writer = self._in_background(write)

    def finished(self) -> SnapshotPosition | None:
        """Return the snapshot that has become durable since the last call, if any.

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

    # -- receiving -------------------------------------------------------------------------------

    @property
    def checking(self) -> bool:
        """Whether a complete snapshot has come and is being checked, or waits to be adopted."""
        return self._checker is not None

    def received(self) -> Received | None:
        """Return the snapshot from the leader that has proved complete since the last call, if any.

        It takes the place of the one in the folder unless it is older: the journal may already
        begin after that one. While a snapshot is being written it waits.

        Raises:
            Exception: it cannot be read though its checksums are right.
        """
        if self._checker is None or self._checker.is_alive() or self.writing:
            return None
        self._checker = None
        if self._failure is not None:
            raise self._failure
        received, self._checked = self._checked, None
        if received is None:
            self._incoming.discard()
            return None
        own = self.position()
        if own is None or own.last_index < received.position.last_index:
            self.on_adopting(received.position.last_index)
            adopt_snapshot(self._incoming.path, self.path)
        else:
            self._incoming.discard()
        return received

    def _begin_checking(self) -> None:
        path = self._incoming.path

        def check() -> None:
            try:
                sync_file(path)
                state = self._decode(self._giving_way(read_chunks(path)))
                self._checked = Received(read_position(path), state)
            except SnapshotCorrupt:
                log.exception("the snapshot that the leader sent is refused; it will come again")
            except Exception as error:  # noqa: BLE001 - handed to the raft thread, which exits
                self._failure = error
            self._wake()

        self._checker = self._in_background(check)

    def _giving_way(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            yield chunk
            self._give_way()

    # -- the library's Serializer ----------------------------------------------------------------

    def getTransmissionData(self, node: VoterNode) -> Piece | None:
        """Return the next piece for a follower, or None while enough is under way to it."""
        if not self._can_send(node):
            self.on_waiting(node)
            return None
        is_first = node not in self._sending
        if is_first:
            if not self.path.exists():
                self.on_waiting(node)
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
        """Take a piece from the leader. It returns False, as a complete snapshot is checked first:
        see ``received``.
        """
        if piece is not None and not self.checking and self._incoming.take(*piece):
            self._begin_checking()
        return False

    def cancelTransmisstion(self, node: VoterNode) -> None:
        sending = self._sending.pop(node, None)
        if sending is not None:
            sending[0].close()

    def close(self) -> None:
        """Stop sending and receiving, and wait for the work in the background."""
        for node in list(self._sending):
            self.cancelTransmisstion(node)
        for background in (self._writer, self._checker):
            if background is not None:
                background.join()
        self._incoming.discard()
