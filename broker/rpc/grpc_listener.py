"""The gRPC listeners of a broker, one for brokers and one for clients, and the refusals at both."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import grpc
import grpc.aio

from quorate.broker.config.grpc_listeners import (
    GRPC_CLIENT_AUTH,
    GRPC_KEYSTORE,
    GRPC_SECURITY_PROTOCOL,
    GRPC_TRUSTSTORE,
    REQUIRED,
)
from quorate.broker.config.spec import quorum_security
from quorate.broker.rpc.peer_channels import (
    GRPC_MESSAGE_BYTES_MAX,
    GRPC_OPTIONS,
    GRPC_REQUEST_BYTES_MAX,
)
from quorate.broker.security.client_guard import ClientGuard, VerifiedPasswords, authenticator
from quorate.broker.security.peer_guard import KnownController, PeerGuard
from quorate.common.configuration import Configuration
from quorate.common.grpc_support.grpc_credentials import server_credentials
from quorate.common.grpc_support.grpc_log import divert_grpc_log
from quorate.common.grpc_support.refusal_log import RefusalLog
from quorate.common.tls.identity import Security
from quorate.common.tls.keystore import load_security
from quorate.common.tls.renewable import RenewableSecurity
from quorate.common.tls.tls_config import BROKER_SECURITY, PLAINTEXT
from quorate.common.types import Endpoint

log = logging.getLogger(__name__)


class GrpcRefusals:
    """Counts the refused connections at both ports.

    Only grpc's core sees failed handshakes, and it writes them to a log.
    """

    def __init__(self) -> None:
        self.inter_broker = RefusalLog("inter-broker port")
        self.clients = RefusalLog("gRPC port")
        self._ports: dict[int, RefusalLog] = {}

    def listen_for_handshakes(self) -> None:
        """Count failed handshakes as refusals from now on; see ``divert_grpc_log`` for when to call
        it.
        """
        divert_grpc_log(self._ports)

    def bound(self, refusals: RefusalLog, port: int) -> None:
        """Record that one of the two listeners has this port."""
        self._ports[port] = refusals


class GrpcListener(NamedTuple):
    """A server that is not bound yet, with its credentials."""

    server: grpc.aio.Server
    credentials: grpc.ServerCredentials | None = None
    """The credentials of the server, or None for plain text."""
    on_bound: Callable[[int], None] = lambda port: None
    """Called with the port once the server is bound to it."""

    def bind(self, wanted: Endpoint) -> Endpoint:
        """Bind the server, and return its address.

        Raises:
            RuntimeError: The port is taken, or the address is not this machine's.
        """
        if self.credentials is None:
            port = self.server.add_insecure_port(str(wanted))
        else:
            port = self.server.add_secure_port(str(wanted), self.credentials)
        self.on_bound(port)
        return Endpoint(wanted.host, port)


def inter_broker_listener(
    security: RenewableSecurity | None, refusals: GrpcRefusals, controller: KnownController
) -> GrpcListener:
    """Return the listener for brokers. ``controller`` tells who the controller is.

    Without ``security`` anybody on loopback counts as a broker.
    """
    if security is None:
        return GrpcListener(_server())
    return GrpcListener(
        _server(PeerGuard(refusals.inter_broker, controller)),
        server_credentials(security, require_client=True),
        partial(refusals.bound, refusals.inter_broker),
    )


def client_listener(
    config: Configuration,
    security: RenewableSecurity | None,
    passwords: VerifiedPasswords,
    refusals: GrpcRefusals,
) -> GrpcListener:
    """Return the listener for clients. Without ``security`` it is plain text."""
    guard = ClientGuard(authenticator(config, passwords), refusals.clients)
    server = _server(guard, request_bytes_max=GRPC_REQUEST_BYTES_MAX)
    if security is None:
        return GrpcListener(server)
    required = config[GRPC_CLIENT_AUTH] == REQUIRED
    return GrpcListener(
        server,
        server_credentials(security, require_client=required),
        partial(refusals.bound, refusals.clients),
    )


class Certificates(NamedTuple):
    """The certificates of a broker's gRPC server, or None for plain text."""

    cluster: RenewableSecurity | None
    """The certificate for brokers and voters."""
    clients: RenewableSecurity | None
    """The certificate for clients of ``grpc.listener``."""


def read_certificates(config: Configuration) -> Certificates:
    """Read and check the configured certificates.

    Raises:
        SecurityError: They cannot be used.
    """
    return Certificates(_of_cluster(config), _of_clients(config))


def _of_clients(config: Configuration) -> RenewableSecurity | None:
    if config[GRPC_SECURITY_PROTOCOL] == PLAINTEXT:
        return None
    keystore = GRPC_KEYSTORE if config[GRPC_KEYSTORE] else BROKER_SECURITY.keystore
    named = (GRPC_TRUSTSTORE, BROKER_SECURITY.truststore)
    truststore = next((key for key in named if config[key]), keystore)

    def load() -> Security:
        return load_security(
            keystore.name, Path(config[keystore]), truststore.name, Path(config[truststore]), None
        )

    return RenewableSecurity(load)


def _of_cluster(config: Configuration) -> RenewableSecurity | None:
    if config[BROKER_SECURITY.protocol] == PLAINTEXT:
        return None

    def load() -> Security:
        security = quorum_security(config)
        assert security is not None
        return security

    return RenewableSecurity(load)


def _server(
    *guards: grpc.aio.ServerInterceptor, request_bytes_max: int = GRPC_MESSAGE_BYTES_MAX
) -> grpc.aio.Server:
    options = dict(GRPC_OPTIONS) | {"grpc.max_receive_message_length": request_bytes_max}
    return grpc.aio.server(interceptors=list(guards), options=list(options.items()))
