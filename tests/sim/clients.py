"""Clients: they open sessions, keep them alive, write, read and retry, also where it is no use."""

from functools import partial
from typing import Final

from quorate.common.types import BrokerId, SessionId
from quorate.metadata_log.codec import encode_transaction
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import Operation, ResultCode, Transaction
from quorate.quorum.raft.driver import ProposalOutcome
from quorate.quorum.voter.sessions import KeepAlive
from quorate_proto.v1 import quorum_pb2 as pb
from tests.sim.history import History
from tests.sim.operations import claim, write
from tests.sim.process import Process
from tests.sim.service import CLIENT, CallContext, Services, Transacted
from tests.sim.world import Violation, World

CALL_TIMEOUT_S: Final = 2.0


class PendingWrite:
    """One transaction on its way."""

    def __init__(self, sequence: int, command: bytes, floor: int) -> None:
        self.sequence = sequence
        self.command = command
        self.floor = floor
        self.attempts = 0
        self.timer = 0
        """The number of the newest timer. Only that one counts."""


class Client:
    """Opens a session, keeps it alive, and has a few operations under way."""

    def __init__(
        self, number: int, world: World, services: Services, history: History, pace_s: float
    ) -> None:
        self.number = number
        self._world = world
        self._services = services
        self._history = history
        self._pace_s = pace_s
        self._leader = self._any_voter()
        self._session: SessionId | None = None
        self._timeout_ms = 0
        self._opening = 0
        self._sequence = 0
        self._writes: dict[int, PendingWrite] = {}
        self._reads = 0
        self._read_number = 0
        self._seen = Image()
        """The image that it read last."""
        self.most_under_way = world.random.choice([1, 1, 2, 4])
        self.is_stopping = False
        world.after(world.between(0.0, 0.5), self._open)
        world.after(world.between(0.1, 0.6), self._go_on)

    @property
    def is_idle(self) -> bool:
        return not self._writes and not self._reads

    def burst(self, count: int) -> None:
        """Many writes at once."""
        if self._session is not None and not self.is_stopping:
            for _ in range(count):
                self._begin_write()

    def _any_voter(self) -> int:
        return self._world.random.choice(self._services.known())

    # -- the session -----------------------------------------------------------------------------

    def _open(self) -> None:
        if self._session is not None or self.is_stopping:
            return
        self._opening += 1
        number, timeout_ms = self._opening, self._world.random.choice([1_500, 3_000, 6_000])
        request = pb.OpenSessionRequest(timeout_ms=timeout_ms, description=f"client {self.number}")

        def answered(answer: object) -> None:
            if number == self._opening and isinstance(answer, pb.OpenSessionResponse):
                self._session = SessionId(answer.session_id)
                self._timeout_ms = answer.timeout_ms
                self._sequence = 0
                self._history.floor = max(self._history.floor, answer.offset)
                self._keep_alive(self._session)

        context = CallContext(CALL_TIMEOUT_S)
        self._services.call(
            CLIENT,
            self._any_voter(),
            lambda process: process.service.OpenSession(request, context),
            answered,
        )
        self._world.after(CALL_TIMEOUT_S * 1.2, self._open)

    def _keep_alive(self, session: SessionId) -> None:
        if session != self._session:
            return

        is_open = session in self._history.record.image.sessions

        async def ping(process: Process) -> tuple[KeepAlive, int]:
            answer = process.voter.keep_alive(session, None)
            return answer, process.voter.leadership.leader_id

        def answered(answer: object) -> None:
            if isinstance(answer, tuple):
                self._check_keep_alive(session, answer[0], is_open=is_open)
            if isinstance(answer, tuple) and answer[0] is KeepAlive.GONE:
                self._lose_session(session)
            elif isinstance(answer, tuple) and answer[1]:
                self._leader = answer[1]
            else:
                self._leader = self._any_voter()

        self._services.call(CLIENT, self._leader, ping, answered)
        self._world.after(min(0.2, self._timeout_ms / 6_000), partial(self._keep_alive, session))

    def _check_keep_alive(self, session: SessionId, answer: KeepAlive, *, is_open: bool) -> None:
        """``is_open``: whether the session was, when the question was asked."""
        who = f"client {self.number}: session {session.hex()[:8]}"
        if answer is KeepAlive.ALIVE and not is_open:
            raise Violation(f"{who} is said to be alive, but it was closed before")
        if answer is KeepAlive.GONE and session in self._history.record.image.sessions:
            raise Violation(f"{who} is said to be gone, but it is open")

    def _lose_session(self, session: SessionId) -> None:
        """Nothing more can be found out about what is under way."""
        if session == self._session:
            self._session = None
            self._writes = {}
            self._world.after(0.05, self._open)

    # -- operations ------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self.is_stopping:
            return
        if len(self._writes) + self._reads < self.most_under_way:
            if self._world.chance(0.25):
                self._begin_read()
            elif self._session is not None:
                self._begin_write()
        self._world.after(self._pace_s * self._world.random.expovariate(1.0), self._go_on)

    def _begin_write(self) -> None:
        assert self._session is not None
        self._sequence += 1
        transaction = Transaction(
            operations=(self._operation(self._session),),
            client_id=self._session,
            sequence=self._sequence,
            low_water=next(iter(self._writes), self._sequence),
        )
        pending = PendingWrite(self._sequence, encode_transaction(transaction), self._history.floor)
        self._writes[self._sequence] = pending
        self._send(self._session, pending)

    def _operation(self, session: SessionId) -> Operation:
        image = self._seen
        if image.controller is None:
            broker_id = BrokerId(1_000 * (self.number + 1) + self._opening)
            return claim(image, broker_id, session)
        return write(image, self._world.random, f"c{self.number} {self._sequence}")

    def _send(self, session: SessionId, pending: PendingWrite) -> None:
        if session != self._session or pending.sequence not in self._writes:
            return
        pending.attempts += 1
        voter_id = self._leader
        if pending.attempts > 1 and self._world.chance(0.3):
            voter_id = self._any_voter()
        self._services.transact(voter_id, pending.command, partial(self._told, session, pending))
        if self._world.chance(0.03):
            # A copy of the same on another way, as after a broken stream.
            other = self._any_voter()
            self._services.transact(other, pending.command, partial(self._told, session, pending))
        self._send_after(self._world.between(0.2, 1.5), session, pending)

    def _send_after(self, delay_s: float, session: SessionId, pending: PendingWrite) -> None:
        pending.timer += 1
        timer = pending.timer

        def due() -> None:
            if timer == pending.timer:
                self._send(session, pending)

        self._world.after(delay_s, due)

    def _told(self, session: SessionId, pending: PendingWrite, answer: object) -> None:
        if session != self._session or self._writes.get(pending.sequence) is not pending:
            return
        if not isinstance(answer, Transacted) or answer.outcome is not ProposalOutcome.COMMITTED:
            hint = answer.leader_id if isinstance(answer, Transacted) else 0
            self._leader = hint or self._any_voter()
            self._send_after(min(0.3, 0.03 * pending.attempts), session, pending)
            return
        if answer.result is None:
            raise Violation("a transaction was applied and has no result")
        del self._writes[pending.sequence]
        who = f"client {self.number}, write {pending.sequence}"
        self._history.wrote(who, (session, pending.sequence), pending.floor, answer)
        codes = {one.code for one in answer.result.results}
        if ResultCode.SESSION_GONE in codes:
            self._lose_session(session)
        elif not self._reads and (self._seen.controller is None or not answer.result.ok):
            self._begin_read()  # It is the controller now, or others have been here.

    def _begin_read(self) -> None:
        self._reads += 1
        self._read_number += 1
        self._read(self._read_number, self._any_voter())

    def _read(self, number: int, voter_id: int) -> None:
        floor = self._history.floor
        state = {"open": True}
        request = pb.ReadRequest(linearizable=True, include_image=True)
        context = CallContext(CALL_TIMEOUT_S)

        def answered(answer: object) -> None:
            if not state["open"]:
                return
            state["open"] = False
            if isinstance(answer, pb.ReadResponse):
                who = f"client {self.number}, read {number} at voter {voter_id}"
                self._seen = self._history.read(who, floor, answer)
                self._reads -= 1
            else:
                self._world.after(0.1, again)

        def again() -> None:
            self._read(number, self._any_voter())

        def give_up() -> None:
            if state["open"]:
                state["open"] = False
                again()

        self._services.call(
            CLIENT, voter_id, lambda process: process.service.Read(request, context), answered
        )
        self._world.after(CALL_TIMEOUT_S * 1.1, give_up)
