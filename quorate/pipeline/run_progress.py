"""The progress of a run, for people at a terminal: a bar, with the time that is left."""

import threading
import time
from collections.abc import Callable
from typing import Final, Self, TextIO

from quorate.pipeline.pipeline_planner import PipelineBatch

INTERVAL_S: Final = 0.2
WIDTH: Final = 30


class RunProgress:
    """Receives the progress of a run and shows nothing, as scripts need it.

    It is a context manager, open during the run. `ProgressBar` is the one that shows something.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Stop showing progress."""

    def planned(self, offsets: int) -> None:
        """Note how many offsets there are to read."""

    def begun(self, batch: PipelineBatch) -> None:
        """Note that a batch was begun."""

    def committed(self, batch: PipelineBatch, rows: int) -> None:
        """Note that a batch was committed."""


class ProgressBar(RunProgress):
    """A line at the terminal that a thread keeps up to date."""

    def __init__(self, out: TextIO, fraction_done: Callable[[], float]) -> None:
        """
        Args:
            out: the terminal.
            fraction_done: returns which fraction of the present batch is done.
        """
        self._out = out
        self._fraction_done = fraction_done
        self._total = 0
        self._done = 0
        self._batch = 0
        self._began = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show_until_over, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._thread.join()
        self._out.write("\r\x1b[K")
        self._out.flush()

    def planned(self, offsets: int) -> None:
        self._total, self._done, self._batch = offsets, 0, 0
        self._began = time.monotonic()

    def begun(self, batch: PipelineBatch) -> None:
        self._batch = batch.size

    def committed(self, batch: PipelineBatch, rows: int) -> None:
        self._done += batch.size
        self._batch = 0

    def _show_until_over(self) -> None:
        while not self._over.wait(INTERVAL_S):
            done = self._done + self._batch * (self._fraction_done() if self._batch else 0)
            text = line(done, self._total, time.monotonic() - self._began)
            self._out.write(f"\r\x1b[K{text}")
            self._out.flush()


def line(done: float, total: int, elapsed_s: float) -> str:
    """Return the text of the bar.

    It looks like ``[#####-----]  50 %  1,000,000 of 2,000,000 offsets, 250,000/s, 0:04 left``.
    """
    if not total:
        return "looking at what there is"
    share = min(done / total, 1.0)
    filled = round(WIDTH * share)
    bar = "#" * filled + "-" * (WIDTH - filled)
    text = f"[{bar}] {share:4.0%}  {done:,.0f} of {total:,} offsets"
    if done <= 0 or elapsed_s <= 0:
        return text
    rate = done / elapsed_s
    return f"{text}, {rate:,.0f}/s, {_minutes(max(total - done, 0) / rate)} left"


def _minutes(seconds: float) -> str:
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
