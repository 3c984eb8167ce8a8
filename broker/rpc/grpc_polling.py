"""Chooses how gRPC's core reads its sockets in a broker. It imports nothing that imports grpc.

By default each incoming message passes through a thread of gRPC's pool, then the thread that polls
Python's completion queue, then the event loop. In the older way the polling thread reads the
sockets itself. That saves one hand-over per message, a tenth of the CPU of replication.
"""

import os
from typing import Final

_VARIABLE: Final = "GRPC_EXPERIMENTS"
_POLLER_READS: Final = "-event_engine_client,-event_engine_listener"


def read_in_the_polling_thread() -> None:
    """Select the older way. This is called once at the start of a process, before anything imports
    grpc.

    If the user has configured experiments, those stay. A gRPC that no longer has these names says
    so in its log and reads in the default way.
    """
    os.environ.setdefault(_VARIABLE, _POLLER_READS)
