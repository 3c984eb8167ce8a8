"""A channel of gRPC that is never closed, because closing the last one may block forever.

Channels share the threads of gRPC's core. Whoever closes the last channel waits for these threads
to end, and holds Python's global lock meanwhile. If one of the threads just gives up the
credentials of a user, which are a Python object, it waits for that lock (grpc/grpc, pull request
42247). The whole process then stands still. While one channel lasts, nobody waits for the threads.
"""

from functools import cache
from typing import Final

import grpc

_NOWHERE: Final = "127.0.0.1:1"
"""The address of the channel. It never connects, because nobody calls through it."""


@cache
def keep_a_channel() -> grpc.Channel:
    """Open the channel of this process, and return it. Later calls return the same one."""
    return grpc.insecure_channel(_NOWHERE)
