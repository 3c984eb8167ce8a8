"""The tables of a draft: drafted writes lie over a persistent map, and each write can be undone.

Written keys lie in plain dictionaries over the maps of the base image, and are folded into new maps
once, at the end of a run of transactions. So a run costs what it changes.
"""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import immutables

from quorate.common.types import SessionId
from quorate.metadata_log.image import ClientResults
from quorate.metadata_log.records import SessionOpened, TransactionResult

K = TypeVar("K")
V = TypeVar("V")

_GONE: Any = object()
UNWRITTEN: Any = object()

UndoLog = list[tuple[dict[Any, Any], Any, Any]]


class DraftTable(Generic[K, V]):
    """A persistent map with drafted writes on top. Each write is recorded so that it
    can be undone.
    """

    __slots__ = ("_base", "_undo", "written")

    def __init__(self, base: "immutables.Map[K, V]", undo: UndoLog) -> None:
        self._base = base
        self._undo = undo
        self.written: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        if key not in self.written:
            return self._base.get(key)
        value = self.written[key]
        return None if value is _GONE else value

    def put(self, key: K, value: V) -> None:
        self._undo.append((self.written, key, self.written.get(key, UNWRITTEN)))
        self.written[key] = value

    def remove(self, key: K) -> None:
        self.put(key, _GONE)

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield the pairs of base and draft together. Use it for small tables only (brokers,
        sessions).
        """
        for key, value in self._base.items():
            if key not in self.written:
                yield key, value
        for key, value in self.written.items():
            if value is not _GONE:
                yield key, value

    def folded(self) -> "immutables.Map[K, V]":
        """Return the base map with every drafted write in it."""
        if not self.written:
            return self._base
        mutation = self._base.mutate()
        for key, value in self.written.items():
            if value is not _GONE:
                mutation[key] = value
            elif key in mutation:
                del mutation[key]
        return mutation.finish()


_NO_RESULTS = ClientResults(0, immutables.Map())


class DraftClientResults:
    """The results kept for one client, open for change: the map is changed once for a whole run."""

    __slots__ = ("_by_sequence", "low_water")

    def __init__(self, kept: ClientResults) -> None:
        self.low_water = kept.low_water
        self._by_sequence = kept.by_sequence.mutate()

    def get(self, sequence: int) -> TransactionResult | None:
        return self._by_sequence.get(sequence)

    def keep(self, sequence: int, result: TransactionResult, low_water: int) -> None:
        """Remember the result for retries, and forget what the client no longer asks for."""
        if low_water > self.low_water:
            self._forget_below(low_water)
        self._by_sequence[sequence] = result

    def _forget_below(self, low_water: int) -> None:
        """Drop the results below the client's new low-water mark.

        Sequences are dense as a rule, so walking from the old mark to the new one is cheaper than
        walking everything that is kept. A client may choose any mark: one that jumps far must not
        cost more than what is kept.
        """
        results = self._by_sequence
        if low_water - self.low_water <= len(results):
            for sequence in range(self.low_water, low_water):
                results.pop(sequence, None)
        else:
            kept = results.finish()
            self._by_sequence = kept.mutate()
            for sequence in kept:
                if sequence < low_water:
                    del self._by_sequence[sequence]
        self.low_water = low_water

    def folded(self) -> ClientResults:
        return ClientResults(self.low_water, self._by_sequence.finish())


class DraftResultsTable:
    """The results kept for clients. Keeping a result is final; only ``remove`` can be undone.

    Results live as long as the client's session: the record that closes the session removes them.
    """

    __slots__ = ("_base", "_sessions", "_undo", "_written")

    def __init__(
        self,
        base: "immutables.Map[SessionId, ClientResults]",
        sessions: "DraftTable[SessionId, SessionOpened]",
        undo: UndoLog,
    ) -> None:
        self._base = base
        self._sessions = sessions
        self._undo = undo
        self._written: dict[SessionId, Any] = {}

    def of(self, client: SessionId) -> DraftClientResults | None:
        """Return the client's results, to read and to change, or None if its session is closed."""
        results: DraftClientResults = self._written.get(client, _GONE)
        return self._open(client) if results is _GONE else results

    def _open(self, client: SessionId) -> DraftClientResults | None:
        if self._sessions.get(client) is None:
            return None
        was_removed = client in self._written
        kept = _NO_RESULTS if was_removed else self._base.get(client, _NO_RESULTS)
        opened = self._written[client] = DraftClientResults(kept)
        return opened

    def remove(self, client: SessionId) -> None:
        self._undo.append((self._written, client, self._written.get(client, UNWRITTEN)))
        self._written[client] = _GONE

    def folded(self) -> "immutables.Map[SessionId, ClientResults]":
        """Return the base map with everything that was kept and forgotten since."""
        if not self._written:
            return self._base
        mutation = self._base.mutate()
        for client, results in self._written.items():
            if results is not _GONE:
                mutation[client] = results.folded()
            elif client in mutation:
                del mutation[client]
        return mutation.finish()
