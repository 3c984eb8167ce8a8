"""Frames of simulated gRPC connections, and who listens where."""

import struct
from typing import Final

import grpc
import grpc.aio

from quorate.common.types import Endpoint

PORT_BASE: Final = 9_000

DOOR_STEP: Final = 500
CLIENTS, BROKERS = range(2)
"""The doors of a host: each is so many ports above the one before."""

HEAD: Final = struct.Struct(">IBB")
"""Call id, kind of frame, length of the method's name or status code."""

OPEN, GHOST, REQUEST, CANCEL, MESSAGE, STATUS = range(6)
"""The last two go to the caller. GHOST opens a call whose answer nobody waits for."""

CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


def endpoint_of(host_id: int, door: int = CLIENTS) -> Endpoint:
    """Return where a broker listens, in all of its incarnations."""
    return Endpoint(f"host{host_id}", PORT_BASE + door * DOOR_STEP + host_id)


def host_and_door(endpoint: Endpoint) -> tuple[int, int]:
    """The inverse."""
    door, host_id = divmod(endpoint.port - PORT_BASE, DOOR_STEP)
    return host_id, door


def failure(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)
