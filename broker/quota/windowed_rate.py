"""Kafka's windowed rate, which is the amount that was counted in the last windows divided by their
time span, and its windowed average.
"""

import math
from collections import deque


class QuotaWindow:
    """The number of windows (``samples``, quota.window.num), and the length ``sample_ms`` of each
    (quota.window.size.seconds).
    """

    __slots__ = ("sample_ms", "samples")

    def __init__(self, samples: int, sample_seconds: float) -> None:
        self.samples = samples
        self.sample_ms = sample_seconds * 1_000

    @property
    def span_ms(self) -> float:
        """The length of all windows together."""
        return self.samples * self.sample_ms


class _Sample:
    __slots__ = ("count", "start_ms", "total")

    def __init__(self, start_ms: float) -> None:
        self.start_ms = start_ms
        self.total = 0.0
        self.count = 0


class _Samples:
    """The values that were counted in the last windows. All times are in ms, by one clock."""

    __slots__ = ("_samples", "_window")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        self._samples: deque[_Sample] = deque()

    def record(self, value: float, now_ms: float) -> None:
        """Count ``value`` at ``now_ms``."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._window.sample_ms:
            self._forget(now_ms)
            samples.append(_Sample(now_ms))
        samples[-1].total += value
        samples[-1].count += 1

    def _forget(self, now_ms: float) -> None:
        while self._samples and now_ms - self._samples[0].start_ms >= self._window.span_ms:
            self._samples.popleft()


class WindowedRate(_Samples):
    """A rate per second.

    It is computed over at least all windows but one. Otherwise the first amount that is counted
    would be an infinite rate.
    """

    __slots__ = ()

    def per_second(self, now_ms: float) -> float:
        """Return the amount that was counted per second."""
        self._forget(now_ms)
        total = sum(sample.total for sample in self._samples)
        return total / self._elapsed_ms(now_ms) * 1_000 if total else 0.0

    def is_silent(self, now_ms: float) -> bool:
        """Return whether nothing was counted for so long that a new rate would be equal."""
        self._forget(now_ms)
        return not self._samples

    def throttle_time_ms(self, limit: float, now_ms: float) -> int:
        """Return for how long there must be no use until the rate is down to ``limit``, in ms."""
        rate = self.per_second(now_ms)
        if rate <= limit:
            return 0
        return math.ceil(round((rate - limit) / limit * self._elapsed_ms(now_ms), 3))

    def _elapsed_ms(self, now_ms: float) -> float:
        """Return the time span of the samples. Windows that have not begun count as full, except
        one.
        """
        sample_ms = self._window.sample_ms
        elapsed_ms = now_ms - self._samples[0].start_ms if self._samples else 0.0
        missing = self._window.samples - 1 - int(elapsed_ms // sample_ms)
        return max(elapsed_ms + max(0, missing) * sample_ms, sample_ms)


class WindowedAverage(_Samples):
    """The average of the values of the last windows, or 0 without any."""

    __slots__ = ()

    def value(self, now_ms: float) -> float:
        """Return the average of the values that are not older than all windows."""
        self._forget(now_ms)
        count = sum(sample.count for sample in self._samples)
        return sum(sample.total for sample in self._samples) / count if count else 0.0
