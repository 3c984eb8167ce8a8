"""The addresses of the voters and the caller's certificates.

Commands that talk to the quorum, and not to a broker, use them.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from quorate.cli.profiles import COMMAND_CONFIG_VARIABLE, default_place, profile_option
from quorate.cli.shared_options import DEFAULT_DATA

if TYPE_CHECKING:
    from quorate.common.tls.identity import Security
    from quorate.quorum.client.directory import VoterDirectory


class QuorumAddress(NamedTuple):
    """The values of ``quorum_address_options``."""

    bootstrap_controller: str | None
    data: Path | None
    command_config: Path | None

    @property
    def is_given(self) -> bool:
        """Return whether the user named a quorum; otherwise the default folder is used."""
        return bool(self.bootstrap_controller or self.data)

    def directory(self) -> "VoterDirectory":
        """Return the voters with the security of this caller; the caller of the method closes it.

        Raises:
            click.UsageError, LocalClusterError: as ``voters``.
            ConfigError: as ``security``.
        """
        from quorate.quorum.client.directory import VoterDirectory

        return VoterDirectory(self.voters(), self.security())

    def voters(self) -> list[str]:
        """Return gRPC addresses of voters from the options, or from the default folder.

        Raises:
            click.UsageError: both were given, or neither was given and there is no local cluster.
            LocalClusterError: no cluster runs in the folder.
        """
        from quorate.cluster.local_cluster_errors import LocalClusterError
        from quorate.cluster.state_file import read_state

        if self.bootstrap_controller and self.data:
            raise click.UsageError("give --bootstrap-controller or --data, not both")
        if self.bootstrap_controller:
            return [address.strip() for address in self.bootstrap_controller.split(",")]
        state = read_state(self.data or DEFAULT_DATA)
        if state is not None:
            return [str(voter["address"]) for voter in state["quorum"]]
        if self.data is None:
            raise click.UsageError(
                f"which quorum? Give --bootstrap-controller HOST:PORT or --data DIR "
                f"(no cluster runs in ./{DEFAULT_DATA})"
            )
        raise LocalClusterError(
            f"no cluster runs in {self.data}: start one with "
            f"`quorate up --data {self.data} --detach`"
        )

    def security(self) -> "Security | None":
        """Return the caller's certificates, from the file or from the local cluster.

        The result is None for plain text, which voters speak on loopback only, if at all.

        Raises:
            ConfigError: the file or the certificates cannot be used; the message says what to do.
        """
        if self.command_config is not None:
            from quorate.common.tls.tls_config import command_security

            return command_security(self.command_config)
        if self.bootstrap_controller is not None:
            return None
        from quorate.cluster.certificates import admin_security

        return admin_security(self.data or DEFAULT_DATA)


def quorum_address_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--bootstrap-controller``, ``--data``, ``--command-config`` and ``--profile``; the
    command receives ``where``."""

    @profile_option
    @click.option(
        "--bootstrap-controller",
        metavar="HOST:PORT,…",
        help="gRPC address of one or more voters of the quorum.",
    )
    @click.option(
        "--data",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Folder of a local cluster; its cluster.json tells where the voters listen. "
        f"Default: ./{DEFAULT_DATA} if a cluster runs there.",
    )
    @click.option(
        "--command-config",
        type=click.Path(path_type=Path, dir_okay=False),
        envvar=COMMAND_CONFIG_VARIABLE,
        metavar="FILE",
        help="File with security.protocol, ssl.keystore.location and ssl.truststore.location, in "
        "TOML or as key=value lines. With --data, the local cluster's own certificate is "
        "used.",
    )
    @functools.wraps(command)
    def with_address(
        bootstrap_controller: str | None,
        data: Path | None,
        command_config: Path | None,
        **others: Any,  # noqa: ANN401 - the command's own
    ) -> None:
        if not bootstrap_controller and not data:
            place = default_place()
            bootstrap_controller = place.bootstrap_controller
            data = None if bootstrap_controller else place.data
            command_config = command_config or place.command_config
        command(where=QuorumAddress(bootstrap_controller, data, command_config), **others)

    return with_address
