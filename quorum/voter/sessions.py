"""The leader's table of sessions, which decides who is alive (rule 9). Pure: the clock comes in.

Keep-alives are soft state, never replicated; opening, closing and expiry are committed
transactions, and the table follows the committed sessions. An overdue session gets one more tick,
so that keep-alives that are waiting are read first; once its expiry is proposed no keep-alive of it
is answered any more.

A new leader gives every session that was heard lately a full timeout. For how many quarters of its
timeout a session has been silent is noted in the log, together for all sessions and only where it
changed; a new leader gives a silent session the rest of its timeout and a margin to find the
leader. So leader changes extend a silent session to about twice its timeout, not for ever, as long
as a leadership lasts longer than a quarter of the timeout. While all sessions are healthy nothing
is written.

A leader of many sessions names a longer interval between keep-alives, a third of the timeout at
most. A session that was told so is silent for longer while it is healthy: where its first quarter
may pass between two keep-alives, that quarter is not noted. This holds for what this leader has
heard: of who never came to it, every quarter is noted. A session that was silent lately, or is so
by the log, is not told a longer interval, because the next leader may give it less than its
timeout.

The table's clock stands still while this process does: a leader that was stopped for a while could
not have heard anybody, so the time does not count against the sessions.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from quorate.common.types import SessionId
from quorate.quorum.keep_alive_intervals import LONGEST_INTERVAL, own_interval_ms

CLOSED_STREAM_MS: Final = 500
"""The time left to a session whose keep-alive stream closed: its process is probably gone.

It is enough to open another stream, and no more: Kafka's C client looks for new leaders once a
second and may need two looks, so every failover takes this long and up to two seconds.
"""

TICK_MS: Final = 50
_LONGEST_STEP_MS: Final = 4 * TICK_MS

NOTE_EVERY_MS: Final = 200
HANDOVER_MARGIN_MS: Final = 500
"""The additional time that a new leader gives a session that had been silent, to find it. It is
also the least that any session gets: the former leader may say for half of it that a session is
alive (rule 9).
"""

KEEP_ALIVES_PER_S: Final = 500
"""The leader names intervals at which all sessions together send about this many keep-alives, each
of which costs it some 0.2 ms.
"""

_QUARTERS: Final = 4
_NOTED_AT_ONCE: Final = 10_000
"""The number of silences in one transaction, which must stay below 1 MiB."""


class KeepAlive(Enum):
    """The answer to a keep-alive."""

    ALIVE = 1
    GONE = 2
    NO_ANSWER = 3
    """This voter does not lead, or has proposed the session's expiry: it must say neither of the
    others.
    """


class _Session:
    __slots__ = (
        "deadline_ms",
        "expiring",
        "interval_ms",
        "noted_quarters",
        "overdue",
        "silent_before_ms",
        "silent_since_ms",
        "stream",
        "timeout_ms",
    )

    def __init__(
        self, timeout_ms: int, now_ms: float, silent_quarters: int, margin_ms: float
    ) -> None:
        self.timeout_ms = timeout_ms
        self.silent_since_ms = now_ms
        self.silent_before_ms = timeout_ms * silent_quarters / _QUARTERS
        left_ms = timeout_ms - self.silent_before_ms + margin_ms
        self.deadline_ms = now_ms + min(max(timeout_ms, margin_ms), left_ms)
        self.noted_quarters = silent_quarters
        self.interval_ms = 0
        self.stream: object = None
        self.overdue = False
        self.expiring = False

    def heard(self, now_ms: float, stream: object, wanted_interval_ms: float) -> None:
        """Give the session its full timeout: a keep-alive came on ``stream``.

        The session is told the wanted interval, if that is longer than its own and the log does not
        say of it that it is silent, nor is about to.
        """
        was_silent = self.noted_quarters > 0 or self.silent_quarters(now_ms) > 0
        named_ms = 0 if was_silent else named_interval_ms(self.timeout_ms, wanted_interval_ms)
        self.interval_ms = named_ms
        self.deadline_ms = now_ms + self.timeout_ms
        self.silent_since_ms = now_ms
        self.silent_before_ms = 0.0
        self.overdue = False
        self.stream = stream

    def stream_closed(self, now_ms: float) -> None:
        """Leave the session only the time to open another stream."""
        self.deadline_ms = min(self.deadline_ms, now_ms + min(CLOSED_STREAM_MS, self.timeout_ms))

    def expires(self, now_ms: float) -> bool:
        """Return whether the expiry is to be proposed now.

        An overdue session gets one more tick. From its expiry on no keep-alive is answered.
        """
        if self.expiring or self.deadline_ms > now_ms:
            return False
        self.expiring = self.overdue
        self.overdue = True
        return self.expiring

    def stays(self) -> None:
        """Take the expiry back: it was surely not committed."""
        self.expiring = False

    def noted(self, quarters: int) -> None:
        """Remember for how many quarters the log says that the session was silent."""
        self.noted_quarters = quarters

    def silent_quarters(self, now_ms: float) -> int:
        """Return for how many quarters of its timeout the session has been silent, 0 while that may
        be the interval it was told.
        """
        silent_ms = self.silent_before_ms + now_ms - self.silent_since_ms
        quarters = min(_QUARTERS, int(_QUARTERS * silent_ms / self.timeout_ms))
        return quarters if quarters > self._unnoted_quarters else 0

    @property
    def _unnoted_quarters(self) -> int:
        """The quarters for which a healthy session may be silent.

        The first one is among them where it is not half as long again as the interval.
        """
        return 1 if self.interval_ms > self.timeout_ms / 6 else 0


def named_interval_ms(timeout_ms: int, wanted_ms: float) -> int:
    """Return the interval that a session with this timeout is told, 0 if it keeps its own."""
    interval_ms = int(min(wanted_ms, timeout_ms * LONGEST_INTERVAL))
    return interval_ms if interval_ms > own_interval_ms(timeout_ms) else 0


class SessionTable:
    """Deadlines of all open sessions while this voter leads. It is empty otherwise."""

    def __init__(self, margin_ms: float = HANDOVER_MARGIN_MS) -> None:
        """Create the table. ``margin_ms`` is the least that a new leader gives every session."""
        self._margin_ms = margin_ms
        self._sessions: dict[SessionId, _Session] = {}
        self._clock_ms = 0.0
        self._last_tick_ms: float | None = None
        self._note_at_ms = 0.0
        self.leading = False

    def lead(self, timeouts_ms: Mapping[SessionId, int], silences: Mapping[SessionId, int]) -> None:
        """Begin to lead: open sessions get their timeout, or the rest of it."""
        self._sessions = {}
        self.leading = True
        self._follow(timeouts_ms, silences, self._margin_ms)

    def resign(self) -> None:
        """Forget all sessions: this voter no longer leads."""
        self._sessions = {}
        self.leading = False

    def follow(
        self, timeouts_ms: Mapping[SessionId, int], silences: Mapping[SessionId, int]
    ) -> None:
        """Take the committed open sessions, and for how many quarters some had been silent."""
        if self.leading:
            self._follow(timeouts_ms, silences, 0)

    def _follow(
        self,
        timeouts_ms: Mapping[SessionId, int],
        silences: Mapping[SessionId, int],
        margin_ms: float,
    ) -> None:
        for session_id in [known for known in self._sessions if known not in timeouts_ms]:
            del self._sessions[session_id]
        for session_id, timeout_ms in timeouts_ms.items():
            quarters = silences.get(session_id, 0)
            session = self._sessions.get(session_id)
            if session is None:
                session = _Session(timeout_ms, self._clock_ms, quarters, margin_ms)
                self._sessions[session_id] = session
            else:
                session.noted(quarters)

    def keep_alive(self, session_id: SessionId, stream: object) -> KeepAlive:
        """Take a keep-alive of the session that came on ``stream``."""
        if not self.leading:
            return KeepAlive.NO_ANSWER
        session = self._sessions.get(session_id)
        if session is None:
            return KeepAlive.GONE
        if session.expiring:
            return KeepAlive.NO_ANSWER
        wanted_interval_ms = 1000 * len(self._sessions) / KEEP_ALIVES_PER_S
        session.heard(self._clock_ms, stream, wanted_interval_ms)
        return KeepAlive.ALIVE

    def interval_ms(self, session_id: SessionId) -> int:
        """Return the interval at which the session is to send keep-alives, 0 for its own."""
        session = self._sessions.get(session_id)
        return 0 if session is None else session.interval_ms

    def stream_closed(self, session_id: SessionId, stream: object) -> None:
        """Note that the stream closed. It does not matter if the session used another one since."""
        session = self._sessions.get(session_id)
        if session is not None and session.stream is stream:
            session.stream_closed(self._clock_ms)

    def tick(self, now_ms: float) -> list[SessionId]:
        """Advance the clock to ``now_ms``; return the sessions whose expiry is to be
        proposed now.
        """
        if self._last_tick_ms is not None:
            self._clock_ms += min(now_ms - self._last_tick_ms, _LONGEST_STEP_MS)
        self._last_tick_ms = now_ms
        return [
            session_id
            for session_id, session in self._sessions.items()
            if session.expires(self._clock_ms)
        ]

    def silences_to_note(self) -> dict[SessionId, int]:
        """Return the silences that the log should state and does not; empty while it is not time to
        look.
        """
        if not self.leading or self._clock_ms < self._note_at_ms:
            return {}
        self._note_at_ms = self._clock_ms + NOTE_EVERY_MS
        changed = {}
        for session_id, session in self._sessions.items():
            quarters = session.silent_quarters(self._clock_ms)
            if not session.expiring and quarters != session.noted_quarters:
                changed[session_id] = quarters
                if len(changed) == _NOTED_AT_ONCE:
                    break
        return changed

    def expiry_refused(self, session_id: SessionId) -> None:
        """Note that the expiry was surely not committed: it is proposed again at the next tick."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.stays()
