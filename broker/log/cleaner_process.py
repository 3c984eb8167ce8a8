"""The process that cleans logs for a broker: ``python -m broker.log.cleaner_process``.

Records are taken apart in Python, and a thread that does so makes every other one wait; so they are
not taken apart in the broker. The process opens no file and knows no log: batches come by one pipe,
replacements go by another. It yields to whoever wants the processor, holds the map of keys, and
ends when the broker does, or has nothing for it to do.
"""

import contextlib
import os
import signal
import subprocess
import sys
from typing import Final

import msgspec

from broker.log.cleaner_messages import (
    Begin,
    Changed,
    Clean,
    Finish,
    Map,
    Mapped,
    Reply,
    Request,
    Undecodable,
    read_frame,
    write_frame,
)
from broker.log.codecs import UndecodableRecords
from broker.log.compaction.log_cleaning import LogCleaning

MODULE: Final = "broker.log.cleaner_process"
_NICENESS: Final = 10
_END_WAIT_S: Final = 5.0


class CleanerGone(OSError):
    """The process has ended by itself, or could not be started."""


class Answering:
    """The process's side: answers requests, in their order."""

    def __init__(self) -> None:
        self._cleaning: LogCleaning

    def answer(self, request: Request) -> Reply:
        try:
            return self._answer(request)
        except UndecodableRecords as error:
            return Undecodable(str(error))

    def _answer(self, request: Request) -> Reply:
        match request:
            case Begin(task):
                self._cleaning = LogCleaning(task)
                return Mapped(task.dirty_from, has_room=True)
            case Map(batches):
                has_room = self._cleaning.map(batches)
                return Mapped(self._cleaning.mapped_to, has_room)
            case Clean(batches):
                return Changed(self._cleaning.clean(batches))
            case Finish():
                return Changed(self._cleaning.finish())


class CleanerProcess:
    """The broker's side; its methods block: call them from a thread of their own."""

    def __init__(self) -> None:
        """
        Raises:
            OSError: it cannot be started.
        """
        self._decoder: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, request: Request) -> Reply:
        """
        Raises:
            CleanerGone: it does not answer any more.
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
        """End it at once: nothing that it does has an effect of its own. Does not block."""
        self._process.kill()

    def close(self) -> None:
        """End it, and wait until it has ended."""
        self._process.kill()
        self._process.wait(_END_WAIT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    decoder: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
    answering = Answering()
    try:
        while (request := read_frame(sys.stdin.buffer, decoder)) is not None:
            write_frame(sys.stdout.buffer, answering.answer(request))
    except BrokenPipeError:
        # The broker is gone, and with it everyone who could want the answer.
        os._exit(0)


if __name__ == "__main__":
    _main()
