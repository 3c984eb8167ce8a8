"""``quorate certs``: makes an authority, and certificates for all members of a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from quorate.cli.output import echo
from quorate.cli.shared_options import json_option, print_json

if TYPE_CHECKING:
    from quorate.common.tls.certificate_authority import CertificateAuthority
    from quorate.common.tls.identity import Role


class Ids(click.ParamType[list[int]]):
    """A list of ids, written as ``1,2,3``."""

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
    help="Folder for the certificates. If it already has an authority, that one signs them.",
)
@click.option("--voters", type=Ids(), metavar="IDS", help="Ids of the voters, for example 1,2,3.")
@click.option("--brokers", type=Ids(), metavar="IDS", help="Ids of the brokers, for example 1,2,3.")
@click.option(
    "--admin",
    "admins",
    multiple=True,
    metavar="NAME",
    help="Name of a person or a script that administers the cluster.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Host name or address for the nodes' certificates. Quorate itself does not check it.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=365,
    show_default=True,
    help="Number of days for which the certificates are valid.",
)
@click.option("--renew", is_flag=True, help="Replace existing keys and certificates with new ones.")
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

    The first run makes an authority in DIR. Keep its key, ca-key.pem, there, and keep it secret.
    Later runs add nodes that the same authority signs. Existing certificates are kept, unless
    --renew is given. Each node needs its own NAME.pem and truststore.pem; a person needs the same
    two files, for --command-config.

    \b
    Example:
      quorate certs --out certs --voters 1,2,3 --brokers 1,2,3 --admin alice
      quorate certs --out certs --brokers 4
      quorate certs --out certs --voters 2 --renew
    """
    from quorate.common.tls.certificate_authority import CertificateAuthority
    from quorate.common.tls.identity import Role

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
    """Refuse names that cannot be file names, or that are the names of nodes.

    The name of a person becomes the name of a file.
    """
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
    echo(f"authority  {authority.truststore}")
    for name, new in made.items():
        state = "" if new else "  (kept; --renew makes a new one)"
        echo(f"{name:<10} {authority.folder / f'{name}.pem'}{state}")
