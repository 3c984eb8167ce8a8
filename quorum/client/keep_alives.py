"""What a client knows about its session from the answers to its keep-alives."""


class KeepAlives:
    """The last answered keep-alive, and for how long the session was in doubt so far.

    The quorum may end a session when ``timeout_ms`` have passed since the last keep-alive that it
    received. From then on the session is in doubt, until the quorum answers another keep-alive.
    All times are monotonic milliseconds.
    """

    def __init__(self) -> None:
        self.last_sent_ms = 0
        """The time at which the last answered keep-alive was sent."""
        self._doubt_began_ms = 0
        """The time from which on the session is in doubt without another answer."""
        self._past_doubt_ms = 0

    def answered(self, sent_ms: int, now_ms: int, timeout_ms: int) -> None:
        """Take the answer to a keep-alive, or to the request that opened the session."""
        self._past_doubt_ms = self.doubt_ms(now_ms)
        self.last_sent_ms = max(self.last_sent_ms, sent_ms)
        self._doubt_began_ms = max(now_ms, self.last_sent_ms + timeout_ms)

    def doubt_ms(self, now_ms: int) -> int:
        """Return for how long the session has been in doubt, in all doubts together."""
        return self._past_doubt_ms + max(0, now_ms - self._doubt_began_ms)
