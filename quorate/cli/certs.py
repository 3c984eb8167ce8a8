"""``quorate certs``: an authority, and certificates for everybody in a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from quorate.cli.options import json_option, print_json

if TYPE_CHECKING:
    from quorum.certificate_authority import CertificateAuthority
    from quorum.security import Role


class Ids(click.ParamType[list[int]]):
    """``1,2,3``"""

    name = "ids"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[int]:
        parts = [part.strip() for part in str(value).split(",")]
        if not all(part.isdecimal() and int(part) < 2**31 for part in parts):
            self.fail(f"{value!r} must be ids, as in 1,2,3", param, ctx)
        return sorted({int(part) for part in parts})


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="Where they go. An authority that is there already signs them.",
)
@click.option("--voters", type=Ids(), metavar="IDS", help="Voters, as in 1,2,3.")
@click.option("--brokers", type=Ids(), metavar="IDS", help="Brokers, as in 1,2,3.")
@click.option("--admin", "admins", multiple=True, metavar="NAME", help="A person or a script.")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Host name or address for the nodes' certificates; Quorate itself does not look at it.",
)
@click.option(
    "--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="How long good."
)
@click.option("--renew", is_flag=True, help="New keys and certificates in place of those there.")
@json_option
def certs(
    out: Path,
    voters: list[int] | None,
    brokers: list[int] | None,
    admins: tuple[str, ...],
    hosts: tuple[str, ...],
    days: int,
    renew: bool,
    as_json: bool,
) -> None:
    """Make certificates for voters, brokers and people.

    The first run makes an authority in DIR (ca-key.pem: keep it there, and to yourself); later runs
    add nodes under it. What is there already is kept, unless --renew is given. Each node needs its
    own NAME.pem and truststore.pem; so does a person, for --command-config.

    \b
    Example:
      quorate certs --out certs --voters 1,2,3 --brokers 1,2,3 --admin alice
      quorate certs --out certs --brokers 4
      quorate certs --out certs --voters 2 --renew
    """
    from quorum.certificate_authority import CertificateAuthority
    from quorum.security import Role

    _refuse_bad_names(admins)
    if not (voters or brokers or admins):
        raise click.UsageError("for whom? Give --voters, --brokers or --admin")
    authority = CertificateAuthority.open(out)
    made = {
        **_nodes(authority, Role.VOTER, voters, days, hosts, renew),
        **_nodes(authority, Role.BROKER, brokers, days, hosts, renew),
        **{name: authority.issue_admin(name, days=days, replace=renew) for name in admins},
    }
    _report(authority, made, as_json)


def _nodes(
    authority: "CertificateAuthority",
    role: "Role",
    ids: list[int] | None,
    days: int,
    hosts: tuple[str, ...],
    renew: bool,
) -> dict[str, bool]:
    return {
        f"{role}-{node_id}": authority.issue_node(
            role, node_id, days=days, hosts=hosts, replace=renew
        )
        for node_id in ids or ()
    }


def _refuse_bad_names(names: tuple[str, ...]) -> None:
    """A person's name becomes a file's; none may take a node's place."""
    for name in names:
        plain = name.replace("-", "").replace("_", "").replace(".", "")
        reserved = name.startswith(("voter-", "broker-", ".")) or name in ("truststore", "ca-key")
        if not plain.isalnum() or reserved or len(name) > 64:
            raise click.UsageError(
                f"--admin {name}: must be letters, digits, dots and dashes, and no node's name"
            )


def _report(authority: "CertificateAuthority", made: dict[str, bool], as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "truststore": str(authority.truststore),
                "keystores": [
                    {"name": name, "file": str(authority.folder / f"{name}.pem"), "made": new}
                    for name, new in made.items()
                ],
            }
        )
        return
    click.echo(f"authority  {authority.truststore}")
    for name, new in made.items():
        state = "" if new else "  (kept; --renew makes a new one)"
        click.echo(f"{name:<10} {authority.folder / f'{name}.pem'}{state}")
