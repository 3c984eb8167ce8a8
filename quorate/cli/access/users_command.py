"""``quorate users``: the users who may log in by SCRAM."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from quorate.cli.admin_session import open_admin
from quorate.cli.output import echo
from quorate.cli.shared_options import admin_options, json_option, print_json, timeout_option

if TYPE_CHECKING:
    from quorate.client.admin import AdminClient
    from quorate.client.results import ScramUpsertion, ScramUser

_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")

_mechanism_option = click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(_MECHANISMS),
    multiple=True,
    help="SCRAM mechanism; may be given twice. Default: both mechanisms.",
)
_iterations_option = click.option(
    "--iterations",
    type=click.IntRange(4_096, 16_384),
    default=8_192,
    show_default=True,
    help="Number of times that the password is hashed.",
)
_password_option = click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="File whose first line is the password; - is standard input. Default: the command asks "
    "for it.",
)


@click.group()
def users() -> None:
    """Add, change and delete users who log in by SCRAM, or by PLAIN with the same password.

    The password does not leave this command. Brokers receive a value that is derived from the
    password: it lets them verify the password, and it is not the password itself.

    \b
    Example:
      quorate users add alice --data ./quorate-data
      quorate users list --data ./quorate-data
    """


@users.command()
@click.argument("name")
@_mechanism_option
@_iterations_option
@_password_option
@admin_options
@timeout_option(30_000)
def add(
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_file: Path | None,
    bootstrap_server: str | None,
    data: Path | None,
    timeout_ms: int,
) -> None:
    """Add the user NAME.

    \b
    Example:
      quorate users add alice --password-file alice.password --data ./quorate-data
    """
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        if admin.describe_user_scram_credentials([name]):
            raise click.ClickException(
                f"there is a user {name!r} already: change it with `quorate users alter {name}`"
            )
        _set(admin, _upsertions(name, mechanisms or _MECHANISMS, iterations, password_file))
    echo(f"Added user {name!r}")


@users.command()
@click.argument("name")
@_mechanism_option
@_iterations_option
@_password_option
@admin_options
@timeout_option(30_000)
def alter(
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_file: Path | None,
    bootstrap_server: str | None,
    data: Path | None,
    timeout_ms: int,
) -> None:
    """Change the password of the user NAME, for all its mechanisms or for those that are given.

    Open connections stay open. connections.max.reauth.ms limits for how long.

    \b
    Example:
      quorate users alter alice --password-file alice.password --data ./quorate-data
    """
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        known = _known(admin, name)
        _set(admin, _upsertions(name, mechanisms or tuple(known), iterations, password_file))
    echo(f"Changed the password of user {name!r}")


@users.command()
@click.argument("name")
@_mechanism_option
@admin_options
@timeout_option(30_000)
def delete(
    name: str,
    mechanisms: tuple[str, ...],
    bootstrap_server: str | None,
    data: Path | None,
    timeout_ms: int,
) -> None:
    """Delete the user NAME, or its credential for one mechanism.

    \b
    Example:
      quorate users delete alice --data ./quorate-data
    """
    from quorate.client.results import ScramDeletion

    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        gone = mechanisms or tuple(_known(admin, name))
        deletions = [ScramDeletion(user=name, mechanism=one) for one in gone]
        for result in admin.alter_user_scram_credentials(deletions):
            result.raise_for_error()
    echo(f"Deleted {', '.join(gone)} of user {name!r}")


@users.command(name="list")
@admin_options
@timeout_option(10_000)
@json_option
def list_users(
    bootstrap_server: str | None, data: Path | None, timeout_ms: int, as_json: bool
) -> None:
    """List the users who may log in.

    \b
    Example:
      quorate users list --data ./quorate-data --json
    """
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        _show(admin.describe_user_scram_credentials(), as_json=as_json)


@users.command()
@click.argument("name")
@admin_options
@timeout_option(10_000)
@json_option
def describe(
    name: str, bootstrap_server: str | None, data: Path | None, timeout_ms: int, as_json: bool
) -> None:
    """Show the mechanisms with which the user NAME may log in.

    \b
    Example:
      quorate users describe alice --data ./quorate-data
    """
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        _known(admin, name)
        _show(admin.describe_user_scram_credentials([name]), as_json=as_json)


def _known(admin: "AdminClient", name: str) -> dict[str, int]:
    """Return the iterations of an existing user by mechanism; refuse an unknown user."""
    found = admin.describe_user_scram_credentials([name])
    if not found:
        raise click.ClickException(f"there is no user {name!r}: see `quorate users list`")
    return found[0].iterations


def _upsertions(
    name: str, mechanisms: Sequence[str], iterations: int, password_file: Path | None
) -> "list[ScramUpsertion]":
    from quorate.client.results import ScramUpsertion

    password = _password(name, password_file)
    return [ScramUpsertion.of_password(name, one, password, iterations) for one in mechanisms]


def _set(admin: "AdminClient", upsertions: "list[ScramUpsertion]") -> None:
    for result in admin.alter_user_scram_credentials(upsertions):
        result.raise_for_error()


def _password(name: str, password_file: Path | None) -> str:
    if password_file is None:
        if not sys.stdin.isatty():
            raise click.UsageError("nobody is there to ask for a password: give --password-file")
        entered: str = click.prompt(
            f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True
        )
        return entered
    text = sys.stdin.readline() if str(password_file) == "-" else password_file.read_text("utf-8")
    password = text.partition("\n")[0].rstrip("\r")
    if not password:
        raise click.ClickException(f"the first line of {password_file} is empty")
    return password


def _show(found: "list[ScramUser]", *, as_json: bool) -> None:
    if as_json:
        print_json([asdict(user) for user in found])
        return
    for user in found:
        how = ", ".join(f"{one} ({count} iterations)" for one, count in user.iterations.items())
        echo(f"{user.user}  {how}")
