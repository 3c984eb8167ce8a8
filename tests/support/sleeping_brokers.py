"""A host of processes that are no brokers: ``python -m tests.support.sleeping_brokers NAME=CODE``.

Each ends with its exit code at once, or, where the code is ``sleeps``, with 0 at SIGTERM, or with 7
when its standard input ends. One that sleeps has come up. The host says when all have.
"""

import os
import signal
import sys

from quorate.broker.host.broker_processes import BrokerProcesses
from quorate.common.clock import monotonic_ms

ORPHANED = 7


def main(words: list[str]) -> int:
    codes = dict(word.split("=") for word in words)

    def say(message: str) -> None:
        sys.stdout.write(f"{message}\n")
        sys.stdout.flush()

    def all_are_up() -> None:
        say("all are up")

    processes = BrokerProcesses(list(codes), monotonic_ms, say, all_are_up)
    chosen = processes.run()
    if isinstance(chosen, int):
        return chosen
    if codes[chosen] != "sleeps":
        return int(codes[chosen])
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    processes.tell_parent_that_up()
    say(f"{chosen} sleeps as {os.getpid()}")
    os.read(0, 1)
    return ORPHANED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
