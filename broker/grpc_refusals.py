"""Who was refused at a broker's gRPC ports, said once per peer."""

from quorum.grpc_log import divert_grpc_log
from quorum.refusals import Refusals


class GrpcRefusals:
    """Of both ports. Failed handshakes are known to grpc's core only, which tells a log."""

    def __init__(self) -> None:
        self.inter_broker = Refusals("inter-broker port")
        self.clients = Refusals("gRPC port")
        self._ports: dict[int, Refusals] = {}

    def listen_for_handshakes(self) -> None:
        """Failed handshakes are refusals from now on; see ``divert_grpc_log`` for when to call."""
        divert_grpc_log(self._ports)

    def bound(self, refusals: Refusals, port: int) -> None:
        """One of the two listens there."""
        self._ports[port] = refusals
