"""Entry point of the console script: it loads commands on demand, and prints an error as one line.

Exit codes: 0 success, 1 refused or failed (one line on stderr), 2 wrong usage, 130 Ctrl-C, 141 the
reader of our output went away.
"""

import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Final

import click
from click.shell_completion import CompletionItem

from quorate.cli.output import echo, echo_lines
from quorate.cli.suggestions import suggest
from quorate.common.escaping import escaped

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "up": ("quorate.cli.cluster.up_command:up", "Start a local cluster of real processes."),
    "down": ("quorate.cli.cluster.down_command:down", "Stop the local cluster."),
    "status": (
        "quorate.cli.cluster.status_command:status",
        "Show controller, brokers, and partitions that need attention.",
    ),
    "top": ("quorate.cli.top.top_command:top", "Show traffic, leaders and alerts, live."),
    "topics": (
        "quorate.cli.topics.topics_command:topics",
        "Create, alter, list, describe and delete topics.",
    ),
    "configs": (
        "quorate.cli.configs.configs_command:configs",
        "Show and change configuration without a restart.",
    ),
    "client-metrics": (
        "quorate.cli.configs.client_metrics_command:client_metrics",
        "Subscribe to metrics that Kafka clients push.",
    ),
    "acls": (
        "quorate.cli.access.acls_command:acls",
        "Add, remove and list access control entries.",
    ),
    "elect-leaders": (
        "quorate.cli.topics.elect_leaders_command:elect_leaders",
        "Elect preferred leaders, or unclean ones.",
    ),
    "brokers": (
        "quorate.cli.cluster.brokers_command:brokers",
        "List brokers, or decommission one.",
    ),
    "reassign": (
        "quorate.cli.topics.reassign_command:reassign",
        "Move replicas from broker to broker.",
    ),
    "schemas": (
        "quorate.cli.schemas.schemas_command:schemas",
        "List, register, check and delete schemas in the registry.",
    ),
    "produce": (
        "quorate.cli.records.produce_command:produce",
        "Produce lines from standard input.",
    ),
    "consume": ("quorate.cli.records.consume_command:consume", "Print records."),
    "groups": (
        "quorate.cli.groups.groups_command:groups",
        "List, describe, reset and delete consumer groups.",
    ),
    "share-groups": (
        "quorate.cli.share_groups.share_groups_command:share_groups",
        "List, describe, reset and delete share groups.",
    ),
    "transactions": (
        "quorate.cli.transactions.transactions_command:transactions",
        "List, describe and abort transactions, and find hanging ones.",
    ),
    "pipeline": (
        "quorate.cli.pipeline.pipeline_command:pipeline",
        "Read topics into Parquet files or tables, each offset exactly once.",
    ),
    "tables": (
        "quorate.cli.table_service.tables_command:tables",
        "Keep topics as Iceberg or Delta tables.",
    ),
    "controller": (
        "quorate.cli.cluster.controller_command:controller",
        "Describe the controller, or replace it.",
    ),
    "metadata": (
        "quorate.cli.metadata.metadata_command:metadata",
        "Read the metadata, the newest or an earlier state.",
    ),
    "tokens": (
        "quorate.cli.access.tokens_command:tokens",
        "Create, renew, expire and describe delegation tokens.",
    ),
    "features": (
        "quorate.cli.cluster.features_command:features",
        "Show feature levels, raise or lower them.",
    ),
    "users": (
        "quorate.cli.access.users_command:users",
        "Add, change and delete users who log in by SCRAM.",
    ),
    "quorum": (
        "quorate.cli.quorum.quorum_command:quorum",
        "Administer the metadata quorum: voters, leader, backups.",
    ),
    "log": (
        "quorate.cli.records.log_command:log",
        "Inspect, check and repair the log folder of a stopped broker.",
    ),
    "spark": (
        "quorate.cli.spark_command:spark",
        "Print the environment variables that start Spark.",
    ),
    "certs": (
        "quorate.cli.access.certs_command:certs",
        "Make certificates for voters, brokers and people.",
    ),
    "completion": (
        "quorate.cli.completion_command:completion",
        "Print the code that completes commands in a shell.",
    ),
    "node": ("quorate.cli.cluster.node_command:node", "Run one voter or broker in the foreground."),
}
"""Each command's location and its line in the help, so that printing the help loads no command."""

EXIT_ERROR: Final = 1
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141


class Ended(Exception):
    """A command ended early and has nothing to print."""

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

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands without importing them."""
        return [
            CompletionItem(name, help=line)
            for name, (_, line) in COMMANDS.items()
            if name.startswith(incomplete)
        ]

    def invoke(self, ctx: click.Context) -> object:
        """Handle Ctrl-C and a closed pipe before click does, which has other messages and exit
        codes."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Ended(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            # Python flushes stdout once more at exit; that flush must not fail again.
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
    """Return the errors that are an answer to the user, and not a fault of the program.

    Their modules are loaded only after something went wrong.
    """
    from quorate.client.bootstrap import BootstrapError
    from quorate.client.errors import QuorateError
    from quorate.cluster.local_cluster_errors import LocalClusterError
    from quorate.common.configuration import ConfigError
    from quorate.quorum.quorum_errors import QuorumError

    return (QuorateError, LocalClusterError, ConfigError, BootstrapError, QuorumError)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit the process."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        code = cli.main(args=arguments, prog_name="quorate", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        suggest(error)
        error.message = escaped(error.message)  # type: ignore[misc]  # Click reads it at show.
        shown = io.StringIO()
        error.show(shown)
        echo_lines(shown.getvalue().removesuffix("\n"), err=True)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except Ended as ended:
        return ended.code
    except expected_errors() as error:
        from quorate.cluster.local_cluster_errors import LocalClusterError

        # A cluster that does not start shows the end of a log, in lines.
        printed = echo_lines if isinstance(error, LocalClusterError) else echo
        printed(f"quorate: {_advised(error)}", err=True)
        return EXIT_ERROR


def _advised(error: Exception) -> str:
    """Return the text of the error, with advice if a right is missing.

    The error itself names the principal and the resource.
    """
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
