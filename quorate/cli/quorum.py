"""``quorate quorum``: the metadata quorum itself, past the brokers."""

import click

from quorate.cli.quorum_backup import backup, restore, verify_backup


@click.group()
def quorum() -> None:
    """Back up, restore and look after the metadata quorum.

    \b
    Example:
      quorate quorum backup --bootstrap-controller host1:7101,host2:7101 --output quorum.backup
    """


for command in (backup, restore, verify_backup):
    quorum.add_command(command)
