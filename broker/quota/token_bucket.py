"""The token bucket of KIP-599: a burst goes through whole, and is waited for afterwards (Q2, Q3).

With K tokens, at most B of them, and R more each second, N mutations are admitted if K >= 0,
whatever N is; then K becomes K - N, below zero if need be. Until it is back at zero, for -K/R
seconds, nothing is admitted. A windowed rate would hold one large burst against its sender until
the window has passed over it, however little it was above the limit.
"""

import math


class TokenBucket:
    """``rate``: R, tokens per second; ``burst``: B. Full at first; times are of any one clock."""

    __slots__ = ("_burst", "_filled_ms", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, now_ms: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._filled_ms = now_ms

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self._rate

    def set_limits(self, rate: float, burst: float, now_ms: float) -> None:
        """From now on the bucket fills at another rate; debts stay."""
        self._fill(now_ms)
        self._rate = rate
        self._burst = burst
        self._tokens = min(self._tokens, burst)

    def tokens(self, now_ms: float) -> float:
        """What is in it; below zero while its users are throttled."""
        self._fill(now_ms)
        return self._tokens

    def is_full(self, now_ms: float) -> bool:
        """It says nothing any more that a new bucket would not."""
        return self.tokens(now_ms) >= self._burst

    def take(self, tokens: float, now_ms: float) -> None:
        """Take as many as are wanted, whether they are there or not."""
        self._fill(now_ms)
        self._tokens -= tokens

    def throttle_time_ms(self, now_ms: float) -> int:
        """Until something is admitted again; 0: it would be now."""
        self._fill(now_ms)
        if self._tokens >= 0:
            return 0
        return math.ceil(round(-self._tokens / self._rate * 1_000, 3))

    def _fill(self, now_ms: float) -> None:
        passed_s = max(0.0, now_ms - self._filled_ms) / 1_000
        self._tokens = min(self._tokens + passed_s * self._rate, self._burst)
        self._filled_ms = max(self._filled_ms, now_ms)
