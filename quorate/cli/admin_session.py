"""Opens the admin client with which a command administers a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from quorate.cli.reachable import require_reachable
from quorate.cli.shared_options import (
    client_options,
    default_grpc_servers,
    given_grpc_servers,
    local_grpc_addresses,
    resolve_bootstrap,
)

if TYPE_CHECKING:
    from quorate.client.admin import AdminClient

CLIENT_ID: Final = "quorate-cli"


def open_admin(
    bootstrap_server: str | None, data: Path | None, timeout_ms: int | None = None
) -> "AdminClient":
    """Return an admin client for the brokers that ``admin_options`` name; the caller closes it.

    It uses gRPC addresses where they are known: Kafka listeners do not let anybody in while the
    cluster has no user, so adding the first user must not need them.

    Raises:
        click.UsageError, LocalClusterError: as ``resolve_bootstrap``.
        click.ClickException: nothing listens at any of the addresses.
        ConfigError, InvalidOption: the security options cannot be used.
    """
    from quorate.client.admin import AdminClient

    addresses = given_grpc_servers()
    if addresses and (bootstrap_server or data):
        raise click.UsageError("give --grpc-server, --bootstrap-server or --data, not two of them")
    if not addresses and not bootstrap_server and not data:
        addresses = default_grpc_servers()
    bootstrap = None if addresses else resolve_bootstrap(bootstrap_server, data)
    addresses = addresses or local_grpc_addresses()
    require_reachable(addresses or bootstrap or "")
    return AdminClient(
        None if addresses else bootstrap,
        grpc_addresses=addresses,
        timeout_ms=timeout_ms,
        client_id=CLIENT_ID,
        options=client_options(),
    )
