"""The token bucket of KIP-599: a burst is admitted as a whole, and its sender waits afterwards (Q2,
Q3).

The bucket holds K tokens, at most B, and gets R more each second. N mutations are admitted if K >=
0, whatever N is; then K becomes K - N, which may be negative. Nothing is admitted for -K/R seconds,
until K is zero again. A windowed rate would instead count a large burst against its sender until
the window has passed over it, even if the burst was only a little above the limit.
"""

import math


class TokenBucket:
    """A bucket of ``burst`` tokens (B) that gets ``rate`` tokens per second (R). It is full at
    first. All times are in ms, by one clock.
    """

    __slots__ = ("_burst", "_filled_ms", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, now_ms: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._filled_ms = now_ms

    @property
    def rate(self) -> float:
        """The number of tokens that are added per second."""
        return self._rate

    def set_limits(self, rate: float, burst: float, now_ms: float) -> None:
        """Change the rate and the burst. A debt stays."""
        self._fill(now_ms)
        self._rate = rate
        self._burst = burst
        self._tokens = min(self._tokens, burst)

    def tokens(self, now_ms: float) -> float:
        """Return the number of tokens in the bucket. It is negative while the users of the bucket
        are throttled.
        """
        self._fill(now_ms)
        return self._tokens

    def is_full(self, now_ms: float) -> bool:
        """Return whether the bucket is full, as a new bucket is."""
        return self.tokens(now_ms) >= self._burst

    def take(self, tokens: float, now_ms: float) -> None:
        """Take ``tokens``, even if the bucket does not have as many."""
        self._fill(now_ms)
        self._tokens -= tokens

    def throttle_time_ms(self, now_ms: float) -> int:
        """Return the time until something is admitted again, in ms. It is 0 if something is
        admitted now.
        """
        self._fill(now_ms)
        if self._tokens >= 0:
            return 0
        return math.ceil(round(-self._tokens / self._rate * 1_000, 3))

    def _fill(self, now_ms: float) -> None:
        passed_s = max(0.0, now_ms - self._filled_ms) / 1_000
        self._tokens = min(self._tokens + passed_s * self._rate, self._burst)
        self._filled_ms = max(self._filled_ms, now_ms)
