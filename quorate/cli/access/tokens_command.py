"""``quorate tokens``: delegation tokens (KIP-48), with the flags of kafka-delegation-tokens."""

import base64
import binascii
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from quorate.cli.admin_session import open_admin
from quorate.cli.output import echo
from quorate.cli.shared_options import admin_options, json_option, print_json, timeout_option

if TYPE_CHECKING:
    from quorate.client.results import DelegationToken

_COLUMNS: Final = (
    ("TOKENID", 15),
    ("HMAC", 30),
    ("OWNER", 15),
    ("REQUESTER", 15),
    ("RENEWERS", 25),
    ("ISSUEDATE", 15),
    ("EXPIRYDATE", 15),
    ("MAXDATE", 15),
)
"""Kafka's columns, each with its minimum width."""


@click.group()
def tokens() -> None:
    """Create, renew, expire and describe delegation tokens.

    A client authenticates with a token by SCRAM: the user name is the token id, the password is the
    HMAC, and the client sends the extension tokenauth=true. A client that authenticated with a
    token cannot get another token.

    \b
    Example:
      quorate tokens create --max-life-time-period -1 --renewer-principal User:spark
      quorate tokens renew --renew-time-period -1 --hmac lAYYSFmLs4bTjf...
      quorate tokens expire --expiry-time-period -1 --hmac lAYYSFmLs4bTjf...
      quorate tokens describe --owner-principal User:alice
    """


@tokens.command()
@admin_options
@click.option(
    "--max-life-time-period",
    "max_lifetime_ms",
    type=int,
    default=-1,
    show_default=True,
    metavar="MS",
    help="Longest lifetime of the token in ms, however often it is renewed. -1: the longest that "
    "the cluster allows.",
)
@click.option(
    "--renewer-principal",
    "renewers",
    multiple=True,
    metavar="USER:NAME",
    help="A principal, besides the owner, that may renew the token. May be given repeatedly.",
)
@click.option(
    "--owner-principal",
    "owner",
    default="",
    metavar="USER:NAME",
    help="Principal that will own the token. Default: you.",
)
@timeout_option(30_000)
@json_option
def create(
    bootstrap_server: str | None,
    data: Path | None,
    max_lifetime_ms: int,
    renewers: tuple[str, ...],
    owner: str,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Create a delegation token.

    \b
    Example:
      quorate tokens create --max-life-time-period 86400000 --renewer-principal User:spark
    """
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        token = admin.create_delegation_token(
            owner=owner, renewers=renewers, max_lifetime_ms=max_lifetime_ms
        )
    if as_json:
        print_json(_readable(token))
        return
    echo(f"Created delegation token with tokenId : {token.token_id}")
    _print_table([token])


@tokens.command()
@admin_options
@click.option(
    "--hmac",
    required=True,
    help="Secret of the token in base64; - reads it from a line of standard input.",
)
@click.option(
    "--renew-time-period",
    "renew_period_ms",
    type=int,
    default=-1,
    show_default=True,
    metavar="MS",
    help="Time in ms from now until the token expires. -1: the time that the cluster configures.",
)
@timeout_option(30_000)
@json_option
def renew(
    bootstrap_server: str | None,
    data: Path | None,
    hmac: str,
    renew_period_ms: int,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Renew a token, so that it expires later.

    \b
    Example:
      quorate tokens renew --renew-time-period 3600000 --hmac lAYYSFmLs4bTjf...
    """

    secret = _secret(hmac)
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        expiry_ms = admin.renew_delegation_token(secret, renew_period_ms=renew_period_ms)
    _print_expiry("renew", expiry_ms, as_json=as_json)


@tokens.command()
@admin_options
@click.option(
    "--hmac",
    required=True,
    help="Secret of the token in base64; - reads it from a line of standard input.",
)
@click.option(
    "--expiry-time-period",
    "expiry_time_period_ms",
    type=int,
    default=-1,
    show_default=True,
    metavar="MS",
    help="Time in ms from now until the token expires. -1: it expires at once.",
)
@timeout_option(30_000)
@json_option
def expire(
    bootstrap_server: str | None,
    data: Path | None,
    hmac: str,
    expiry_time_period_ms: int,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Make a token expire at once or earlier than planned.

    \b
    Example:
      quorate tokens expire --expiry-time-period -1 --hmac lAYYSFmLs4bTjf...
    """

    secret = _secret(hmac)
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        expiry_ms = admin.expire_delegation_token(
            secret, expiry_time_period_ms=expiry_time_period_ms
        )
    _print_expiry("expire", expiry_ms, as_json=as_json)


@tokens.command()
@admin_options
@click.option(
    "--owner-principal",
    "owners",
    multiple=True,
    metavar="USER:NAME",
    help="Only show tokens that this principal owns, requested or may renew. May be given "
    "repeatedly.",
)
@timeout_option(10_000)
@json_option
def describe(
    bootstrap_server: str | None,
    data: Path | None,
    owners: tuple[str, ...],
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Show delegation tokens. The HMAC is shown for your own tokens only.

    \b
    Example:
      quorate tokens describe --owner-principal User:alice --json
    """
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        found = admin.describe_delegation_tokens(owners)
    if as_json:
        print_json([_readable(token) for token in found])
        return
    echo(f"Total number of tokens : {len(found)}")
    _print_table(found)


def _secret(hmac: str) -> bytes:
    text = sys.stdin.readline() if hmac == "-" else hmac
    try:
        return base64.b64decode(text.strip(), validate=True)
    except binascii.Error as error:
        raise click.UsageError(
            f"--hmac is not base64 ({error}): give it as it was shown"
        ) from error


def _print_table(found: "Sequence[DelegationToken]") -> None:
    rows = [tuple(name for name, _ in _COLUMNS)] + [_row(token) for token in found]
    for row in rows:
        cells = [cell.ljust(width) for cell, (_, width) in zip(row, _COLUMNS, strict=True)]
        echo(" ".join(cells).rstrip())


def _row(token: "DelegationToken") -> tuple[str, ...]:
    dates = (_date(at_ms) for at_ms in (token.issue_ms, token.expiry_ms, token.max_ms))
    renewers = ",".join(token.renewers)
    return token.token_id, token.password, token.owner, token.requester, renewers, *dates


def _date(at_ms: int) -> str:
    """Format a time as Kafka does: yyyy-MM-dd'T'HH:mm in UTC.

    A time beyond the calendar is returned as a number.
    """
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M")
    except (ValueError, OverflowError):
        return str(at_ms)


def _print_expiry(operation: str, expiry_ms: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"expiry_ms": expiry_ms})
    else:
        echo(f"Completed {operation} operation. New expiry date : {_date(expiry_ms)}")


def _readable(token: "DelegationToken") -> dict[str, Any]:
    return {**asdict(token), "hmac": token.password}
