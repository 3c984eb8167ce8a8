"""The metadata quorum as one linearizable service: that it is one, its own simulator shows.

Transactions go through their wire form and the real ``apply``, sessions through the real table.
What may happen to clients of a quorum happens to these: no leader for a while, requests and answers
lost on the way, watches that lag or begin with a snapshot, sessions that end.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from quorate.common.types import MetadataOffset, SessionId
from quorate.metadata_log.apply import Applied, AppliedRun, apply, apply_run
from quorate.metadata_log.codec import decode_transaction
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.image import Changes, Image
from quorate.metadata_log.records import (
    FolderMarks,
    Operation,
    SessionClosed,
    SessionOpened,
    SessionSilence,
    SessionSilences,
    Transaction,
    TransactionResult,
)
from quorate.quorum.voter import folder_marks
from quorate.quorum.voter.sessions import KeepAlive, SessionTable
from tests.sim.world import World
from tests.support.metadata import first_voter_set

if TYPE_CHECKING:
    from tests.sim.cluster.quorum_client import SimulatedQuorumClient

TICK_S: Final = 0.2

LATE_S: Final = 5.0
"""The longest time in seconds that a message is stuck in a queue. It comes after its sender has
given it up."""


class SimulatedQuorum:
    """The log, the image, who is alive, and who watches."""

    def __init__(self, world: World) -> None:
        self.image = Image()
        self.log: list[tuple[MetadataOffset, Transaction]] = []
        self.delay_s = 0.002
        self.commit_s = 0.003
        self.lost = 0.0
        self.cuts: set[tuple[int, bool]] = set()
        """(host, towards the quorum) ways that are cut."""
        self.lagging: dict[int, float] = {}
        """Watches of a host lag by so much."""
        self.lateness_s: Callable[[int, Sequence[Operation]], float] = lambda *_: 0.0
        """A function that returns how many seconds late a host's transaction comes; its other calls
        are not late."""
        self.on_applied: Callable[[Image, Applied, Transaction], None] = lambda *_: None
        self._world = world
        self._table = SessionTable()
        self._marks = folder_marks.FolderMarks()
        self._leader_from = 0.0
        self._terms = 0
        self._watchers: dict[SimulatedQuorumClient, None] = {}
        self._before: Image = self.image
        self._applied: dict[MetadataOffset, tuple[Image, Applied]] = {}
        self.began_at: Final = world.random.choice(
            [1, NEWEST_METADATA_VERSION, NEWEST_METADATA_VERSION]
        )
        """The metadata version of the first records."""
        begins = msgspec.structs.replace(first_voter_set(), metadata_version=self.began_at)
        self.write(Operation(records=(begins,)))
        self._lead()
        world.after(TICK_S, self._tick)

    @property
    def leads(self) -> bool:
        return self._world.now >= self._leader_from

    # -- the log ---------------------------------------------------------------------------------

    def apply(self, transaction: Transaction) -> TransactionResult:
        """Commit a transaction."""
        offset = MetadataOffset(self.image.offset + 1)
        before = self.image
        applied = apply(before, offset, transaction)
        self._applied[offset] = (before, applied)
        self.image = applied.image
        self.log.append((offset, transaction))
        self._table.follow(
            {one: session.timeout_ms for one, session in self.image.sessions.items()},
            self.image.silences,
        )
        self.on_applied(before, applied, transaction)
        for watcher in self._watchers:
            watcher.grown()
        return applied.result

    def applied_again(
        self, image: Image, run: Sequence[tuple[MetadataOffset, Transaction]]
    ) -> AppliedRun:
        """``apply_run`` for those who watch: known where it is applied to the same image."""
        after, results, changes = image, [], Changes()
        for offset, _ in run:
            before, applied = self._applied.get(offset, (None, None))
            if applied is None or before is not after:
                return apply_run(image, run)
            after = applied.image
            results.append(applied.result)
            pairs = zip(changes, applied.changes, strict=True)
            changes = Changes(*(one | other for one, other in pairs))  # type: ignore[operator]
        return AppliedRun(after, results, changes)

    def write(self, *operations: Operation) -> TransactionResult:
        """Write as a tool does."""
        return self.apply(Transaction(operations=operations))

    # -- its leader ------------------------------------------------------------------------------

    def fail_over(self, seconds: float) -> None:
        """Leave the quorum without a leader for a time. Calls under way are lost, and all sessions
        get more time."""
        self._terms += 1
        self._leader_from = max(self._leader_from, self._world.now + seconds)
        self._table.resign()
        self._world.at(self._leader_from, self._lead)

    def _lead(self) -> None:
        if self.leads and not self._table.leading:
            self._table.lead(
                {one: session.timeout_ms for one, session in self.image.sessions.items()},
                self.image.silences,
            )

    def _tick(self) -> None:
        self._world.after(TICK_S, self._tick)
        for session_id in self._table.tick(self._world.now * 1000):
            if not self.leads:
                return
            self._world.note(f"quorum: session {session_id.hex()[:6]} expires")
            self.write(Operation(records=(SessionClosed(session_id=session_id, reason="expired"),)))
        changed = self._table.silences_to_note()
        if changed:
            silences = tuple(
                SessionSilence(session_id=one, quarters=quarters)
                for one, quarters in changed.items()
            )
            self.write(Operation(records=(SessionSilences(silences=silences),)))
        marks = self._marks.due(self.image, self._world.now * 1000) if self.leads else ()
        if marks:
            self.write(Operation(records=(FolderMarks(marks=marks),)))

    # -- what clients ask ------------------------------------------------------------------------

    def keep_alive(self, session_id: SessionId, stream: object, mark: int) -> KeepAlive:
        if not self.leads:
            return KeepAlive.NO_ANSWER
        answer = self._table.keep_alive(session_id, stream)
        if answer is KeepAlive.ALIVE:
            self._marks.hear(session_id, mark)
        return answer

    def stream_closed(self, session_id: SessionId, stream: object) -> None:
        self._table.stream_closed(session_id, stream)

    def open_session(self, timeout_ms: int, description: str) -> SessionId:
        session_id = SessionId(self._world.random.randbytes(16))
        opened = SessionOpened(
            session_id=session_id, timeout_ms=timeout_ms, description=description
        )
        self.write(Operation(records=(opened,)))
        return session_id

    def close_session(self, session_id: SessionId) -> None:
        self.write(Operation(records=(SessionClosed(session_id=session_id, reason="closed"),)))

    def transact(self, encoded: bytes, answer: Callable[[TransactionResult], None]) -> None:
        """Commit a client's transaction, unless the leader is lost before."""
        if not self.leads:
            return
        term = self._terms

        def commit() -> None:
            if term == self._terms:
                transaction = decode_transaction(encoded)
                answer(self.apply(transaction))

        self._world.after(self.commit_s * self._world.between(0.3, 2.0), commit)

    # -- the way to it ---------------------------------------------------------------------------

    def ask(self, host_id: int, request: Callable[[], None], *, late_s: float = 0.0) -> None:
        """Run ``request`` at the quorum, if it gets there."""
        self._pass(host_id, request, towards=True, late_s=late_s)

    def tell(self, client: "SimulatedQuorumClient", answer: Callable[[], None]) -> None:
        """Run ``answer`` at the client, if it gets there."""
        action = partial(client.host.deliver, client.process, answer)
        self._pass(client.host.voter_id, action, towards=False)

    def is_cut(self, host_id: int, *, towards: bool) -> bool:
        return (host_id, towards) in self.cuts

    def delay(self) -> float:
        return self.delay_s * (0.5 + self._world.random.expovariate(1.5))

    def _pass(
        self, host_id: int, action: Callable[[], None], *, towards: bool, late_s: float = 0.0
    ) -> None:
        world = self._world
        if (host_id, towards) in self.cuts or (self.lost and world.chance(self.lost)):
            return
        late_s += world.between(0.0, LATE_S) if world.chance(self.lost) else 0.0
        world.after(self.delay() + late_s, action)

    # -- watches ---------------------------------------------------------------------------------

    def watch(self, client: "SimulatedQuorumClient") -> None:
        self._watchers[client] = None

    def unwatch(self, client: "SimulatedQuorumClient") -> None:
        self._watchers.pop(client, None)
