"""Finds out fast whether anything listens where a command is about to connect.

The clients below keep trying for as long as they may. For a person who mistyped an address that
would be a long silence.
"""

import socket
import time
from collections.abc import Sequence
from typing import Final

import click

TIMEOUT_S: Final = 3.0
"""The time for all addresses together."""


def require_reachable(addresses: str | Sequence[str]) -> None:
    """Return once one of the addresses accepts a connection. The others are not tried then.

    Raises:
        click.ClickException: none does; says why each does not.
        click.UsageError: an address is malformed.
    """
    from quorate.client.bootstrap import format_address, parse_servers

    text = addresses if isinstance(addresses, str) else ",".join(addresses)
    try:
        servers = parse_servers(text)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    deadline = time.monotonic() + TIMEOUT_S
    reasons: list[str] = []
    for index, (host, port) in enumerate(servers):
        share_s = max(0.2, (deadline - time.monotonic()) / (len(servers) - index))
        try:
            with socket.create_connection((host, port), timeout=share_s):
                return
        except OSError as error:
            reasons.append(f"{format_address(host, port)}: {error.strerror or error}")
    raise click.ClickException(
        f"no broker can be reached ({'; '.join(reasons)}): check the address, and that the "
        "brokers run"
    )
