"""The gRPC ports of a broker: one for brokers, one for clients."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import grpc
import grpc.aio

from broker.config.spec import quorum_security
from broker.grpc_options import GRPC_MESSAGE_BYTES_MAX, GRPC_OPTIONS, GRPC_REQUEST_BYTES_MAX
from broker.grpc_refusals import GrpcRefusals
from broker.security.client_guard import ClientGuard
from broker.security.grpc_config import (
    GRPC_CLIENT_AUTH,
    GRPC_KEYSTORE,
    GRPC_SECURITY_PROTOCOL,
    GRPC_TRUSTSTORE,
    REQUIRED,
)
from broker.security.grpc_identity import Passwords, authenticator
from broker.security.peer_guard import PeerGuard
from metadata_log.configuration import Configuration
from metadata_log.types import Endpoint
from quorum.keystore import load_security
from quorum.peers import server_credentials
from quorum.renewable import RenewableSecurity
from quorum.security import Security
from quorum.security_config import BROKER_SECURITY, PLAINTEXT

log = logging.getLogger(__name__)


class GrpcListener(NamedTuple):
    """A server that listens nowhere yet, and how it will."""

    server: grpc.aio.Server
    credentials: grpc.ServerCredentials | None = None
    """None: plain text."""
    on_bound: Callable[[int], None] = lambda port: None
    """Told the port."""

    def bind(self, wanted: Endpoint) -> Endpoint:
        """Listen; returns where.

        Raises:
            RuntimeError: the port is taken, or the address is not this machine's.
        """
        if self.credentials is None:
            port = self.server.add_insecure_port(str(wanted))
        else:
            port = self.server.add_secure_port(str(wanted), self.credentials)
        self.on_bound(port)
        return Endpoint(wanted.host, port)


def inter_broker_listener(
    security: RenewableSecurity | None, refusals: GrpcRefusals
) -> GrpcListener:
    """For brokers; ``security`` None: anybody on loopback is believed to be one."""
    if security is None:
        return GrpcListener(_server())
    return GrpcListener(
        _server(PeerGuard(refusals.inter_broker)),
        server_credentials(security, require_client=True),
        partial(refusals.bound, refusals.inter_broker),
    )


def client_listener(
    config: Configuration,
    security: RenewableSecurity | None,
    passwords: Passwords,
    refusals: GrpcRefusals,
) -> GrpcListener:
    """For clients. ``security`` None: plain text."""
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
    """What a broker proves itself with; None: plain text."""

    cluster: RenewableSecurity | None
    """To brokers and voters."""
    clients: RenewableSecurity | None
    """To clients of ``grpc.listener``."""


def read_certificates(config: Configuration) -> Certificates:
    """Those that are configured, read and checked.

    Raises:
        SecurityError: they cannot be used.
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
