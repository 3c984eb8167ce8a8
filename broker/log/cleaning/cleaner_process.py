"""The process that cleans logs for a broker: ``python -m`` with the name of this module.

Records are decoded in Python, and a thread that does so makes every other thread wait. They are
therefore decoded in a separate process. The process opens no file and knows no log: batches come by
one pipe, replacements go by another. It runs at low priority, holds the map of keys, and ends when
the broker ends or has nothing for it to do.
"""

import contextlib
import os
import signal
import subprocess
import sys
from typing import Final

import msgspec

from quorate.broker.log.batches.codecs import UndecodableRecords
from quorate.broker.log.cleaning.cleaner_messages import (
    BatchesReplaced,
    BeginCleaning,
    CleanBatches,
    CleanerReply,
    CleanerRequest,
    FinishCleaning,
    KeysMapped,
    LogUndecodable,
    MapKeys,
    read_frame,
    write_frame,
)
from quorate.broker.log.compaction.log_cleaning import LogCleaning

MODULE: Final = "quorate.broker.log.cleaning.cleaner_process"
_NICENESS: Final = 10
_END_WAIT_S: Final = 5.0


class CleanerGone(OSError):
    """Raised when the process has ended by itself, or could not be started."""


class CleanerRequestHandler:
    """The process's side of the pipes. It answers requests in their order."""

    def __init__(self) -> None:
        self._cleaning: LogCleaning

    def answer(self, request: CleanerRequest) -> CleanerReply:
        try:
            return self._answer(request)
        except UndecodableRecords as error:
            return LogUndecodable(str(error))

    def _answer(self, request: CleanerRequest) -> CleanerReply:
        match request:
            case BeginCleaning(task):
                self._cleaning = LogCleaning(task)
                return KeysMapped(task.dirty_from, has_room=True)
            case MapKeys(batches):
                has_room = self._cleaning.map(batches)
                return KeysMapped(self._cleaning.mapped_to, has_room)
            case CleanBatches(batches):
                return BatchesReplaced(self._cleaning.clean(batches))
            case FinishCleaning():
                return BatchesReplaced(self._cleaning.finish())


class CleanerProcess:
    """The broker's side of the pipes. Its methods block, so they are called from a thread of their
    own."""

    def __init__(self) -> None:
        """Start the process.

        Raises:
            OSError: The process cannot be started.
        """
        self._decoder: msgspec.msgpack.Decoder[CleanerReply] = msgspec.msgpack.Decoder(CleanerReply)
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, request: CleanerRequest) -> CleanerReply:
        """Send a request and return its answer.

        Raises:
            CleanerGone: The process does not answer any more.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            write_frame(self._process.stdin, request)
            reply = read_frame(self._process.stdout, self._decoder)
        except OSError as error:
            raise CleanerGone(f"the cleaner's process ended: {error}") from error
        if reply is None:
            raise CleanerGone(f"the cleaner's process ended: status {self._process.wait()}")
        return reply

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """End the process at once, without blocking. This is safe, because the process itself
        changes nothing."""
        self._process.kill()

    def close(self) -> None:
        """End the process, and wait until it has ended."""
        self._process.kill()
        self._process.wait(_END_WAIT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    decoder: msgspec.msgpack.Decoder[CleanerRequest] = msgspec.msgpack.Decoder(CleanerRequest)
    answering = CleanerRequestHandler()
    try:
        while (request := read_frame(sys.stdin.buffer, decoder)) is not None:
            write_frame(sys.stdout.buffer, answering.answer(request))
    except BrokenPipeError:
        # The broker has ended, so nobody needs the answer.
        os._exit(0)


if __name__ == "__main__":
    _main()
