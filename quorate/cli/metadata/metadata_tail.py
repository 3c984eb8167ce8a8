"""``quorate metadata tail``: prints transactions as they are applied."""

import asyncio
import json
from typing import Any

import click

from quorate.cli.metadata.metadata_source import MetadataAddress, metadata_options, watch
from quorate.cli.output import echo, echo_json
from quorate.cli.shared_options import json_option


@click.command()
@click.option(
    "--from-offset",
    type=click.IntRange(min=0),
    help="First offset to print, if the log still holds it.",
)
@click.option(
    "--max-messages", type=click.IntRange(min=1), help="Stop after this number of transactions."
)
@click.option("--timeout-ms", type=click.IntRange(min=1), help="Stop after this time.")
@metadata_options
@json_option
def tail(
    where: MetadataAddress,
    from_offset: int | None,
    max_messages: int | None,
    timeout_ms: int | None,
    as_json: bool,
) -> None:
    """Print transactions as they are applied, each with its result. Ctrl-C stops the command.

    With --json, each transaction is one line.

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
    """Print transactions, which are also applied here, because the log does not hold their
    results."""
    from quorate.metadata_log.apply import apply
    from quorate.metadata_log.image import Image
    from quorate.metadata_log.tree.readable import readable_transaction
    from quorate.quorum.client.watch import SnapshotLoaded

    image, left = Image(), max_messages
    limit_s = None if timeout_ms is None else timeout_ms / 1000
    begin = {"from_offset": 0} if from_offset is None else {"from_oldest": True}
    try:
        async with asyncio.timeout(limit_s), watch(where, **begin) as events:
            async for event in events:
                if isinstance(event, SnapshotLoaded):
                    image = event.image
                    if image.offset >= (from_offset or image.offset + 1):
                        echo(f"the log is kept from offset {image.offset + 1} on", err=True)
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
        echo_json(transaction)
        return
    if transaction["retry_of"] is not None:
        echo(f"{transaction['offset']}  a retry of {transaction['retry_of']}, and changes nothing")
        return
    for operation in transaction["operations"]:
        outcome = operation["code"]
        if operation["detail"]:
            outcome += f" ({operation['detail']})"
        echo(f"{transaction['offset']}  {outcome}")
        for record in operation["records"]:
            ((kind, fields),) = record.items()
            echo(f"    {kind} {json.dumps(fields)}")
