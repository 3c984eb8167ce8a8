"""``quorate metadata tail``: transactions as they are applied."""

import asyncio
import json
from typing import Any

import click

from quorate.cli.metadata_source import MetadataAddress, metadata_options, watch
from quorate.cli.options import json_option


@click.command()
@click.option(
    "--from-offset", type=click.IntRange(min=0), help="Begin here, as far back as the log is kept."
)
@click.option("--max-messages", type=click.IntRange(min=1), help="End after so many.")
@click.option("--timeout-ms", type=click.IntRange(min=1), help="End after so long.")
@metadata_options
@json_option
def tail(
    where: MetadataAddress,
    from_offset: int | None,
    max_messages: int | None,
    timeout_ms: int | None,
    as_json: bool,
) -> None:
    """Print transactions as they are applied, and what became of each; Ctrl-C ends it.

    With --json, one line per transaction.

    \b
    Example:
      quorate metadata tail --from-offset 100 --max-messages 5 --data ./quorate-data
    """
    asyncio.run(_tail(where, from_offset, max_messages, timeout_ms, as_json=as_json))


async def _tail(
    where: MetadataAddress,
    from_offset: int | None,
    max_messages: int | None,
    timeout_ms: int | None,
    *,
    as_json: bool,
) -> None:
    """Applied here as well, since what became of a transaction is not in the log."""
    from metadata_log.apply import apply
    from metadata_log.image import Image
    from metadata_log.readable import readable_transaction
    from quorum.client_watch import SnapshotLoaded

    image, left = Image(), max_messages
    limit_s = None if timeout_ms is None else timeout_ms / 1000
    begin = {"from_offset": 0} if from_offset is None else {"from_oldest": True}
    try:
        async with asyncio.timeout(limit_s), watch(where, **begin) as events:
            async for event in events:
                if isinstance(event, SnapshotLoaded):
                    image = event.image
                    if image.offset >= (from_offset or image.offset + 1):
                        click.echo(f"the log is kept from offset {image.offset + 1} on", err=True)
                    continue
                for offset, transaction in event.transactions:
                    applied = apply(image, offset, transaction)
                    image = applied.image
                    if offset < (from_offset or 0):
                        continue
                    _show_one(
                        readable_transaction(offset, transaction, applied.result), as_json=as_json
                    )
                    left = None if left is None else left - 1
                    if left == 0:
                        return
    except TimeoutError:
        if limit_s is None:
            raise


def _show_one(transaction: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(transaction))
        return
    for operation in transaction["operations"]:
        outcome = operation["code"]
        if operation["detail"]:
            outcome += f" ({operation['detail']})"
        click.echo(f"{transaction['offset']}  {outcome}")
        for record in operation["records"]:
            ((kind, fields),) = record.items()
            click.echo(f"    {kind} {json.dumps(fields)}")
