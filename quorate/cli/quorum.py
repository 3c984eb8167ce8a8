"""``quorate quorum``: the metadata quorum itself, past the brokers."""

import click

from quorate.cli.quorum_backup import backup, restore, verify_backup
from quorate.cli.quorum_membership import add_voter, remove_voter, status, transfer


@click.group()
def quorum() -> None:
    """Look after the metadata quorum: its voters, its leader, its backups.

    \b
    Example:
      quorate quorum status --bootstrap-controller host1:7101,host2:7101
      quorate quorum add-voter 4@host4:7001/7101 --bootstrap-controller host1:7101
      quorate quorum backup --bootstrap-controller host1:7101,host2:7101 --output quorum.backup
    """
    from quorum.grpc_log import quiet_handshakes

    quiet_handshakes()


for command in (status, add_voter, remove_voter, transfer, backup, restore, verify_backup):
    quorum.add_command(command)
