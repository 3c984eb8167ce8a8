"""``quorate metadata``: shows the cluster's metadata as the tree that ZooKeeper users know (E5)."""

import asyncio
import fnmatch
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from quorate.cli.metadata.metadata_history import history
from quorate.cli.metadata.metadata_source import (
    MetadataAddress,
    image_at,
    image_now,
    metadata_options,
)
from quorate.cli.metadata.metadata_tail import tail
from quorate.cli.metadata.metadata_write import rm, set_
from quorate.cli.output import echo, echo_json
from quorate.cli.shared_options import Command, json_option, key_values, print_json

if TYPE_CHECKING:
    from quorate.metadata_log.image import Image


@click.group()
def metadata() -> None:
    """Read the cluster's metadata, the newest or an earlier state of it.

    Paths are those of ZooKeeper: /controller, /brokers/ids/1, /brokers/topics/T/0/leaderAndISR.

    \b
    Example:
      quorate metadata ls /brokers/topics --bootstrap-server 127.0.0.1:9092
      quorate metadata get /controller --bootstrap-controller 127.0.0.1:7101
      quorate metadata tail --data ./quorate-data
    """


def path_argument(default: str | None = None) -> Callable[[Command], Command]:
    """Add the argument ``PATH``; the command receives it as ``path``."""
    return click.argument("path", default=default, required=default is None)


@metadata.command()
@path_argument("/")
@metadata_options
@json_option
def ls(where: MetadataAddress, path: str, as_json: bool) -> None:
    """List the names directly below a path.

    \b
    Example:
      quorate metadata ls /brokers/ids --data ./quorate-data
    """
    from quorate.metadata_log.tree.tree import children

    names = children(asyncio.run(image_now(where)), path)
    if names is None:
        raise click.ClickException(f"there is nothing at {path}")
    _print_all(names, as_json=as_json)


@metadata.command()
@path_argument()
@metadata_options
@json_option
def get(where: MetadataAddress, path: str, as_json: bool) -> None:
    """Print the record at a path, as JSON.

    \b
    Example:
      quorate metadata get /brokers/topics/events/0/leaderAndISR --data ./quorate-data
    """
    from quorate.metadata_log.tree.tree import value_at

    value = value_at(asyncio.run(image_now(where)), path)
    if value is None:
        raise click.ClickException(f"nothing is recorded at {path}")
    echo_json(value, indent=2 if as_json else None)


@metadata.command()
@path_argument("/")
@metadata_options
@json_option
def tree(where: MetadataAddress, path: str, as_json: bool) -> None:
    """Print every path at and below a path, with its record.

    \b
    Example:
      quorate metadata tree /brokers/topics/events --data ./quorate-data
    """
    _show_tree(asyncio.run(image_now(where)), path, as_json=as_json)


@metadata.command()
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    required=True,
    help="The metadata offset after which the tree is shown.",
)
@path_argument("/")
@metadata_options
@json_option
def at(where: MetadataAddress, offset: int, path: str, as_json: bool) -> None:
    """Print the tree as it was after a metadata offset. The log must still hold that offset.

    \b
    Example:
      quorate metadata at --offset 120 /controller --data ./quorate-data
    """
    from quorate.common.types import MetadataOffset

    _show_tree(asyncio.run(image_at(where, MetadataOffset(offset))), path, as_json=as_json)


@metadata.command()
@click.argument("pattern")
@click.option(
    "--where",
    "wanted",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Only paths whose record has this value, for example leader=2. May be given repeatedly.",
)
@metadata_options
@json_option
def find(where: MetadataAddress, pattern: str, wanted: tuple[str, ...], as_json: bool) -> None:
    """Find paths by a pattern with * and ?, and by values in their records.

    \b
    Example:
      quorate metadata find "*/leaderAndISR" --where leader=2 --data ./quorate-data
    """
    from quorate.metadata_log.tree.tree import value_at, walk

    fields = key_values(wanted, "--where")
    image = asyncio.run(image_now(where))
    matches = re.compile(fnmatch.translate(pattern)).match
    _print_all(
        [
            path
            for path in walk(image)
            if matches(path) and (not fields or _has(value_at(image, path), fields))
        ],
        as_json=as_json,
    )


def _show_tree(image: "Image", path: str, *, as_json: bool) -> None:
    from quorate.metadata_log.tree.tree import children, value_at, walk

    if children(image, path) is None:
        raise click.ClickException(f"there is nothing at {path} after offset {image.offset}")
    if as_json:
        print_json({one: value_at(image, one) for one in walk(image, path)})
        return
    for one in walk(image, path):
        echo(f"{one}  {json.dumps(value_at(image, one))}")


def _print_all(lines: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json(lines)
    else:
        for line in lines:
            echo(line)


def _has(value: object, fields: dict[str, str]) -> bool:
    return isinstance(value, dict) and all(
        name in value and _text(value[name]) == wanted for name, wanted in fields.items()
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


for command in (history, tail, rm, set_):
    metadata.add_command(command)
