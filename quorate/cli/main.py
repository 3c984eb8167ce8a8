"""Entry point of the console script: loads commands on demand, turns errors into one line.

Exit codes: 0 done, 1 refused or failed (one line on stderr), 2 wrong usage, 130 Ctrl-C, 141 the
reader of our output went away.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

import click

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "up": ("quorate.cli.up:up", "Start a local cluster of real processes."),
    "down": ("quorate.cli.down:down", "Stop the local cluster."),
    "status": ("quorate.cli.status:status", "Show controller, brokers and partitions in trouble."),
    "top": ("quorate.cli.top:top", "Show traffic, leaders and trouble, live."),
    "topics": ("quorate.cli.topics:topics", "Create, alter, list, describe and delete topics."),
    "configs": (
        "quorate.cli.configs:configs",
        "Show configurations, and change them without a restart.",
    ),
    "acls": ("quorate.cli.acls:acls", "Say who may do what."),
    "elect-leaders": (
        "quorate.cli.elect_leaders:elect_leaders",
        "Elect preferred leaders, or unclean ones.",
    ),
    "brokers": ("quorate.cli.brokers:brokers", "List brokers, or empty one."),
    "reassign": ("quorate.cli.reassign:reassign", "Move replicas from broker to broker."),
    "produce": ("quorate.cli.produce:produce", "Produce lines from standard input."),
    "consume": ("quorate.cli.consume:consume", "Print records."),
    "groups": (
        "quorate.cli.groups:groups",
        "List, describe, reset and delete consumer groups.",
    ),
    "transactions": (
        "quorate.cli.transactions:transactions",
        "List, describe and abort transactions, find those that hang.",
    ),
    "pipeline": (
        "quorate.cli.pipeline:pipeline",
        "Read topics into Parquet files, each offset exactly once.",
    ),
    "controller": ("quorate.cli.controller:controller", "Describe the controller, or replace it."),
    "metadata": ("quorate.cli.metadata:metadata", "Look at the metadata, now or back then."),
    "tokens": ("quorate.cli.tokens:tokens", "Make, renew, end and show delegation tokens."),
    "features": ("quorate.cli.features:features", "Show feature levels, raise or lower them."),
    "users": ("quorate.cli.users:users", "Add, change and delete users who log in by SCRAM."),
    "quorum": (
        "quorate.cli.quorum:quorum",
        "Look after the quorum: voters, leader, backups.",
    ),
    "log": ("quorate.cli.log:log", "Look into a stopped broker's log folder, check it, mend it."),
    "spark": (
        "quorate.cli.spark:spark",
        "Print what a shell needs to start Spark.",
    ),
    "certs": ("quorate.cli.certs:certs", "Make certificates for voters, brokers and people."),
    "node": ("quorate.cli.node:node", "Run one voter or broker in the foreground."),
}
"""Command → where it is, and its line in the help: so that the help loads no command."""

EXIT_ERROR: Final = 1
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141


class Ended(Exception):
    """A command ended early, without anything to say."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Hides Ctrl-C and a closed pipe from click, which has its own words and codes for them."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Ended(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            # Python flushes stdout once more at exit; that must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise Ended(EXIT_BROKEN_PIPE) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="quorate")
def cli() -> None:
    """Quorate: a Kafka-compatible replicated log without ZooKeeper and without a JVM.

    \b
    Example:
      quorate up --detach
      quorate topics create --topic events --partitions 6 --replication-factor 3
      echo hello | quorate produce --topic events
      quorate consume --topic events --from-beginning --timeout-ms 2000
      quorate down
    """


def expected_errors() -> tuple[type[Exception], ...]:
    """Errors that are the answer, not a fault of ours. Loaded only once something went wrong."""
    from metadata_log.configuration import ConfigError
    from quorate.client.bootstrap import BootstrapError
    from quorate.client.errors import QuorateError
    from quorate.cluster.errors import LocalClusterError
    from quorum.errors import QuorumError

    return (QuorateError, LocalClusterError, ConfigError, BootstrapError, QuorumError)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command and exits."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; its exit code."""
    try:
        code = cli.main(args=arguments, prog_name="quorate", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except Ended as ended:
        return ended.code
    except expected_errors() as error:
        click.echo(f"quorate: {_advised(error)}", err=True)
        return EXIT_ERROR


def _advised(error: Exception) -> str:
    """The error, and what to do where somebody has no right; the error names who and to what."""
    text = str(error)
    refused = str(getattr(error, "error", "")).endswith("AUTHORIZATION_FAILED")
    if not refused and "is not allowed to" not in text:
        return text
    return (
        f"{text}: have it allowed with `quorate acls --add`, or say who you are with "
        "--command-config"
    )


if __name__ == "__main__":
    main()
