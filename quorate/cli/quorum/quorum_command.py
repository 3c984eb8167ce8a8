"""``quorate quorum``: administers the metadata quorum directly, without the brokers."""

import click

from quorate.cli.quorum.quorum_backup import backup, restore, verify_backup
from quorate.cli.quorum.quorum_membership import add_voter, remove_voter, status, transfer


@click.group()
def quorum() -> None:
    """Administer the metadata quorum: its voters, its leader, its backups.

    \b
    Example:
      quorate quorum status --bootstrap-controller host1:7101,host2:7101
      quorate quorum add-voter 4@host4:7001/7101 --bootstrap-controller host1:7101
      quorate quorum backup --bootstrap-controller host1:7101,host2:7101 --output quorum.backup
    """
    from quorate.common.grpc_support.grpc_log import quiet_handshakes

    quiet_handshakes()


for command in (status, add_voter, remove_voter, transfer, backup, restore, verify_backup):
    quorum.add_command(command)
