"""Frames of simulated gRPC connections, and who listens where."""

import struct
from typing import Final

import grpc
import grpc.aio

from metadata_log.types import Endpoint

PORT_BASE: Final = 9_000

HEAD: Final = struct.Struct(">IBB")
"""Call id, kind of frame, length of the method's name or status code."""

OPEN, GHOST, REQUEST, CANCEL, MESSAGE, STATUS = range(6)
"""The last two go to the caller. GHOST opens a call whose answer nobody waits for."""

CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


def endpoint_of(host_id: int) -> Endpoint:
    """Where a broker listens, in all of its incarnations."""
    return Endpoint(f"host{host_id}", PORT_BASE + host_id)


def failure(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)
