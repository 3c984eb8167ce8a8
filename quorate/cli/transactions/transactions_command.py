"""``quorate transactions``: shows open and hanging transactions, and aborts them."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from quorate.cli.admin_session import open_admin
from quorate.cli.output import echo
from quorate.cli.shared_options import admin_options, json_option, print_json, timeout_option
from quorate.cli.tables import print_table
from quorate.cli.transactions.transactions_view import duration, show_producers

if TYPE_CHECKING:
    from quorate.client.admin import AdminClient

TIMEOUT_MS: Final = 30_000


@click.group()
def transactions() -> None:
    """List, describe and abort transactions, and find hanging ones.

    \b
    Example:
      quorate transactions list --open-for 5m
      quorate transactions find-hanging
      quorate transactions abort --topic orders --partition 3 --start-offset 4711
    """


@transactions.command("list")
@admin_options
@click.option(
    "--state", "states", multiple=True, help="Only transactions in this state, for example Ongoing."
)
@click.option(
    "--producer-id",
    "producer_ids",
    type=int,
    multiple=True,
    help="Only transactions of this producer id.",
)
@click.option(
    "--open-for",
    metavar="5m|2h",
    help="Only transactions that have been open for longer than this.",
)
@timeout_option(TIMEOUT_MS)
@json_option
def list_(
    bootstrap_server: str | None,
    data: Path | None,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    open_for: str | None,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """List transactional ids and their states.

    \b
    Example:
      quorate transactions list --state Ongoing --open-for 5m
    """
    open_for_ms = 0 if open_for is None else max(1, _duration_ms("--open-for", open_for))
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        found = admin.list_transactions(
            states=states, producer_ids=producer_ids, open_for_ms=open_for_ms
        )
    if as_json:
        print_json([asdict(one) for one in found])
        return
    rows = [
        (
            one.transactional_id,
            str(one.coordinator),
            one.state,
            str(one.producer_id),
            str(one.producer_epoch),
            duration(one.open_ms),
        )
        for one in found
    ]
    heads = ("transactional id", "coordinator", "state", "producer id", "epoch", "open for")
    print_table(heads, rows, none="no transactions")


@transactions.command()
@admin_options
@click.argument("transactional_id")
@timeout_option(TIMEOUT_MS)
@json_option
def describe(
    bootstrap_server: str | None,
    data: Path | None,
    transactional_id: str,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Show a transactional id: its producer, its state and its open transaction.

    \b
    Example:
      quorate transactions describe billing-7
    """
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        found = admin.list_transactions(transactional_ids=[transactional_id])
    if not found:
        raise click.ClickException(
            f"there is no transactional id {transactional_id!r}, or it may not be described; "
            "`quorate transactions list` shows those there are"
        )
    if as_json:
        print_json(asdict(found[0]))
        return
    for one in found:
        since = "" if one.open_ms is None else f", open for {duration(one.open_ms)}"
        echo(
            f"{one.transactional_id}: {one.state}{since} (at most {duration(one.timeout_ms)}), "
            f"producer {one.producer_id} epoch {one.producer_epoch}, "
            f"coordinator broker {one.coordinator}"
        )
        for name in one.partitions:
            echo(f"  {name.topic}-{name.partition}")


@transactions.command()
@admin_options
@click.option("--topic", required=True, help="Name of the topic.")
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Number of a partition. Default: all partitions.",
)
@timeout_option(TIMEOUT_MS)
@json_option
def producers(
    bootstrap_server: str | None,
    data: Path | None,
    topic: str,
    partitions: tuple[int, ...],
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Show the idempotent and transactional producers that partitions know.

    \b
    Example:
      quorate transactions producers --topic orders --partition 3
    """
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        found = admin.describe_producers(topic, partitions)
    show_producers(found, "no producers", as_json=as_json)


@transactions.command("find-hanging")
@admin_options
@click.option("--topic", default="", help="Only search this topic.")
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only search this partition of --topic.",
)
@timeout_option(TIMEOUT_MS)
@json_option
def find_hanging(
    bootstrap_server: str | None,
    data: Path | None,
    topic: str,
    partitions: tuple[int, ...],
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Find transactions that are open in a partition and that no coordinator will end.

    Consumers with read_committed cannot read beyond such a transaction, and compaction stops there
    too.

    \b
    Example:
      quorate transactions find-hanging
      quorate transactions find-hanging --topic orders --json
    """
    if partitions and not topic:
        raise click.UsageError("--partition goes with --topic")
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        found = admin.find_hanging_transactions(topic, partitions)
    show_producers(found, "no transaction hangs", as_json=as_json)
    if not as_json:
        for one in found:
            echo(
                f"to end it: quorate transactions abort --topic {one.topic} "
                f"--partition {one.partition} --start-offset {one.transaction_start_offset}"
            )


@transactions.command()
@admin_options
@click.option(
    "--transactional-id",
    help="Abort the open transaction of this transactional id, and fence its producer.",
)
@click.option(
    "--topic", help="Topic of a hanging transaction that is aborted without its coordinator."
)
@click.option("--partition", type=click.IntRange(min=0), help="Number of a partition of --topic.")
@click.option(
    "--start-offset", type=click.IntRange(min=0), help="First offset of the hanging transaction."
)
@click.option("--dry-run", is_flag=True, help="Show what would be aborted, and abort nothing.")
@timeout_option(TIMEOUT_MS)
@json_option
def abort(
    bootstrap_server: str | None,
    data: Path | None,
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    dry_run: bool,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Abort a transaction: consumers with read_committed never see its records.

    By its transactional id, a transaction is aborted as if it had timed out: its producer is
    fenced, and another producer may start at once. By partition and offset, it must be a
    transaction that find-hanging has found. Any other transaction would be aborted in this
    partition and perhaps committed in others.

    \b
    Example:
      quorate transactions abort --transactional-id billing-7
      quorate transactions abort --topic orders --partition 3 --start-offset 4711 --dry-run
    """
    if (transactional_id is None) == all(part is None for part in (topic, partition, start_offset)):
        raise click.UsageError(
            "which transaction? Give --transactional-id, or --topic, --partition and --start-offset"
        )
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        if transactional_id is not None:
            what = f"transaction of {transactional_id!r}"
            producer_id, epoch = _abort_id(admin, transactional_id, what, dry_run=dry_run)
        elif topic is None or partition is None or start_offset is None:
            raise click.UsageError("--topic, --partition and --start-offset go together")
        else:
            what = f"transaction at offset {start_offset} of {topic}-{partition}"
            place = (topic, partition, start_offset)
            producer_id, epoch = _abort_at(admin, place, what, dry_run=dry_run)
    if as_json:
        print_json({"aborted": not dry_run, "producer_id": producer_id, "producer_epoch": epoch})
        return
    done = "would be aborted (--dry-run)" if dry_run else "was aborted"
    echo(f"{what}, producer {producer_id} epoch {epoch}, {done}")


def _abort_id(
    admin: "AdminClient", transactional_id: str, what: str, *, dry_run: bool
) -> tuple[int, int]:
    if not dry_run:
        return admin.abort_transaction(transactional_id)
    found = admin.list_transactions(transactional_ids=[transactional_id])
    if not found or found[0].state != "Ongoing":
        state = found[0].state if found else "not known"
        raise click.ClickException(f"{what}: there is nothing to abort, it is {state}")
    return found[0].producer_id, found[0].producer_epoch


def _abort_at(
    admin: "AdminClient", place: tuple[str, int, int], what: str, *, dry_run: bool
) -> tuple[int, int]:
    topic, partition, start_offset = place
    hanging = [
        one
        for one in admin.find_hanging_transactions(topic, [partition])
        if one.transaction_start_offset == start_offset
    ]
    if not hanging:
        raise click.ClickException(
            f"{what}: no transaction that hangs begins there; `quorate transactions producers "
            f"--topic {topic} --partition {partition}` shows what is open, and one that a "
            "coordinator looks after is aborted by its --transactional-id"
        )
    if dry_run:
        return hanging[0].producer_id, hanging[0].producer_epoch
    return admin.abort_hanging_transaction(topic, partition, start_offset)


def _duration_ms(option: str, text: str) -> int:
    from quorate.common.durations import parse_duration_ms

    try:
        return parse_duration_ms(text)
    except ValueError:
        raise click.UsageError(f"{option} {text}: write 500ms, 30s, 10m, 2h or 1d") from None
