"""Opens and closes connections of a user, in an interpreter whose only channels they are."""

import random
from typing import Any, Final

import grpc

from quorate.client import security
from quorate.client.grpc_channels import open_channel
from quorate_proto.v1 import admin_pb2, admin_pb2_grpc
from tests.support.waiting import let_time_pass

_TIMEOUTS_S: Final = (0.001, 0.002, 0.003, 0.004, 0.006)
"""Times in which a connection is made, or is not: credentials are dropped at either side."""


class _SlowlyDropped:
    """A plugin for credentials that takes the interpreter's lock twice when it is dropped."""

    def __call__(self, _context: object, callback: Any) -> None:  # noqa: ANN401 - of grpc
        callback((), None)

    def __del__(self) -> None:
        let_time_pass(0.002, "the interpreter's lock is given up and taken again")


def close_channels(address: str, ca: str, seed: int, count: int) -> None:
    """Open and close ``count`` connections to a TLS server."""
    chance = random.Random(seed)
    security._basic = lambda user: _SlowlyDropped()
    options = security.ClientSecurity(protocol="SASL_SSL", ca=ca, username="u", password="p")
    for _ in range(count):
        channel = open_channel(address, options)
        try:
            stub = admin_pb2_grpc.AdminStub(channel)
            stub.ClusterStatus(admin_pb2.ClusterStatusRequest(), timeout=chance.choice(_TIMEOUTS_S))
        except grpc.RpcError:
            pass
        finally:
            channel.close()
