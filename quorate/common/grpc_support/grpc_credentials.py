"""Credentials of gRPC servers and channels, made from a process's certificates."""

from typing import Any

import grpc

from quorate.common.tls.identity import Security
from quorate.common.tls.renewable import SecuritySource, current


def channel_credentials(security: Security) -> grpc.ChannelCredentials:
    """Return the credentials with which a client of the quorum proves its identity."""
    return grpc.ssl_channel_credentials(
        root_certificates=security.authority,
        private_key=security.private_key,
        certificate_chain=security.chain,
    )


def server_credentials(security: SecuritySource, *, require_client: bool) -> grpc.ServerCredentials:
    """Return the credentials of a server whose certificate may be renewed: each handshake uses the
    newest.

    With ``require_client`` nobody connects without a certificate of the authority.
    """
    used = current(security)
    assert used is not None

    def renewed() -> Any:  # noqa: ANN401 - typed nowhere in grpc
        nonlocal used
        newest = current(security)
        if newest is used or newest is None:
            return None
        used = newest
        return _configuration(newest, require_client=require_client)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(used, require_client=require_client),
        renewed,
        require_client_authentication=require_client,
    )


def _configuration(security: Security, *, require_client: bool) -> Any:  # noqa: ANN401 - as above
    return grpc.ssl_server_certificate_configuration(
        [(security.private_key, security.chain)],
        root_certificates=security.authority if require_client else None,
    )
