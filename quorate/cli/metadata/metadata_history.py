"""``quorate metadata history``: shows every change of a path."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from quorate.cli.metadata.metadata_source import MetadataAddress, image_now, metadata_options, watch
from quorate.cli.output import echo, echo_json
from quorate.cli.shared_options import json_option

if TYPE_CHECKING:
    from quorate.metadata_log.tree.history import Author, KeyChange


@click.command()
@click.argument("path")
@metadata_options
@json_option
def history(where: MetadataAddress, path: str, as_json: bool) -> None:
    """Print the changes at and below a path, as far back as the log is kept: the time, the author,
    and the value before and after.

    With --json, each change is one line. Times come from the clocks of the writers.

    \b
    Example:
      quorate metadata history /brokers/topics/events/0 --data ./quorate-data
      quorate metadata history /config --bootstrap-server 127.0.0.1:9092
    """
    asyncio.run(_history(where, path, as_json=as_json))


async def _history(where: MetadataAddress, path: str, *, as_json: bool) -> None:
    prefix = "/" + path.strip("/")
    below = prefix.rstrip("/") + "/"
    async for change in _changes(where):
        if change.key == prefix or change.key.startswith(below):
            _show(change, as_json=as_json)


async def _changes(where: MetadataAddress) -> "AsyncIterator[KeyChange]":
    """Yield all changes from the oldest kept state up to now."""
    from quorate.metadata_log.image import Image
    from quorate.metadata_log.tree.history import history as history_of
    from quorate.quorum.client.watch import SnapshotLoaded

    newest = (await image_now(where)).offset
    image = Image()
    async with watch(where, from_oldest=True) as events:
        async for event in events:
            if isinstance(event, SnapshotLoaded):
                image = event.image
                if image.offset:
                    echo(f"changes are kept from offset {image.offset + 1} on", err=True)
                continue
            for offset, transaction in event.transactions:
                image, changes = history_of(image, offset, transaction)
                for change in changes:
                    yield change
            if event.applied_offset >= newest:
                return


def _show(change: "KeyChange", *, as_json: bool) -> None:
    old, new = _parsed(change.old), _parsed(change.new)
    if as_json:
        echo_json({**_head(change), "old": old, "new": new})
        return
    head = _head(change)
    echo(
        f"{head['offset']}  {head['time'] or 'at an unknown time'}  {change.key}  "
        f"{change.kind}  by {_who(change.author)}"
    )
    for sign, value in (("-", old), ("+", new)):
        if value is not None:
            echo(f"    {sign} {json.dumps(value)}")


def _head(change: "KeyChange") -> dict[str, Any]:
    author = change.author
    return {
        "offset": change.offset,
        "time": _time(author.timestamp_ms),
        "key": change.key,
        "record_type": change.kind,
        "controller_epoch": author.controller_epoch,
        "writer": author.writer,
        "principal": None if author.note is None else author.note.principal,
        "client_host": None if author.note is None else author.note.client_host,
        "api": None if author.note is None else author.note.api,
    }


def _who(author: "Author") -> str:
    words = [author.writer]
    if author.controller_epoch is not None:
        words.append(f"(controller epoch {author.controller_epoch})")
    if author.note is not None:
        words.append(f"for {author.note.principal} at {author.note.client_host}")
    return " ".join(words)


def _time(timestamp_ms: int) -> str | None:
    if not timestamp_ms:
        return None
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _parsed(value: bytes | None) -> Any:  # noqa: ANN401 - JSON
    return None if value is None else json.loads(value)
