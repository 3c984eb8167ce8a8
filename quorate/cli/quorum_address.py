"""Where the voters are, and who asks, for commands that talk to the quorum and not to a broker."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from quorate.cli.options import DEFAULT_DATA

if TYPE_CHECKING:
    from quorum.client_directory import VoterDirectory
    from quorum.security import Security


class QuorumAddress(NamedTuple):
    """What the options of ``quorum_address_options`` say."""

    bootstrap_controller: str | None
    data: Path | None
    command_config: Path | None

    @property
    def is_given(self) -> bool:
        """Whether the user named a quorum, rather than leave it to the default folder."""
        return bool(self.bootstrap_controller or self.data)

    def directory(self) -> "VoterDirectory":
        """The voters, as this caller may talk to them; to be closed.

        Raises:
            click.UsageError, LocalClusterError: as ``voters``.
            ConfigError: as ``security``.
        """
        from quorum.client_directory import VoterDirectory

        return VoterDirectory(self.voters(), self.security())

    def voters(self) -> list[str]:
        """gRPC addresses of voters from the options, or from the default folder.

        Raises:
            click.UsageError: both were given, or neither and no local cluster is there.
            LocalClusterError: no cluster runs in the folder.
        """
        from quorate.cluster.errors import LocalClusterError
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
        """The caller's certificates: of the file, or else of the local cluster.

        None: plain text, which voters speak on loopback only, if at all.

        Raises:
            ConfigError: the file or the certificates cannot be used; says what to do.
        """
        if self.command_config is not None:
            from quorum.security_config import command_security

            return command_security(self.command_config)
        if self.bootstrap_controller is not None:
            return None
        from quorate.cluster.certificates import admin_security

        return admin_security(self.data or DEFAULT_DATA)


def quorum_address_options(command: Callable[..., None]) -> Callable[..., None]:
    """``--bootstrap-controller``, ``--data``, ``--command-config``; the command gets ``where``."""

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
        metavar="FILE",
        help="security.protocol, ssl.keystore.location and ssl.truststore.location, in TOML or as "
        "key=value lines. With --data, the local cluster's own certificate is used.",
    )
    @functools.wraps(command)
    def with_address(
        bootstrap_controller: str | None,
        data: Path | None,
        command_config: Path | None,
        **others: Any,  # noqa: ANN401 - the command's own
    ) -> None:
        command(where=QuorumAddress(bootstrap_controller, data, command_config), **others)

    return with_address
