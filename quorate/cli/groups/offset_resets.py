"""Where ``reset-offsets`` moves the offsets of a group: the options, and what they mean."""

import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Self

import click

from quorate.cli.groups.group_view import number_text
from quorate.cli.output import echo
from quorate.cli.shared_options import (
    cluster_options,
    json_option,
    print_json,
    timeout_option,
)
from quorate.cli.tables import print_table

if TYPE_CHECKING:
    from quorate.cli.groups.group_offsets import Groups, Move, Partition

Command = Callable[..., None]

_OPTIONS: Final = (
    click.option("--to-earliest", is_flag=True, help="Reset to the first available record."),
    click.option(
        "--to-latest", is_flag=True, help="Reset to the end of the log, after the last record."
    ),
    click.option(
        "--to-offset", type=click.IntRange(min=0), help="Reset each partition to this offset."
    ),
    click.option(
        "--to-datetime", metavar="ISO-8601", help="Reset to the first record at or after this time."
    ),
    click.option(
        "--by-duration",
        metavar="1d|2h|30m",
        help="Reset to the first record that is not older than this duration.",
    ),
    click.option(
        "--shift-by",
        type=int,
        help="Move forward by this number of records, or backward if it is negative.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetWish:
    """Where to reset to; to the latest offsets if nothing else is given."""

    to_earliest: bool
    to_offset: int | None
    since_ms: int | None
    shift_by: int | None

    @classmethod
    def of(
        cls,
        *,
        to_earliest: bool,
        to_latest: bool,
        to_offset: int | None,
        to_datetime: str | None,
        by_duration: str | None,
        shift_by: int | None,
    ) -> Self:
        """Return the wish of the one option that is given.

        Raises:
            click.UsageError: none is given, or several are, or one cannot be parsed.
        """
        wishes = {
            "--to-earliest": to_earliest or None,
            "--to-latest": to_latest or None,
            "--to-offset": to_offset,
            "--to-datetime": to_datetime,
            "--by-duration": by_duration,
            "--shift-by": shift_by,
        }
        given = {name: wish for name, wish in wishes.items() if wish is not None}
        if len(given) != 1:
            raise click.UsageError(f"give exactly one of {', '.join(wishes)}")
        ((name, wish),) = given.items()
        is_time = name in ("--to-datetime", "--by-duration")
        return cls(
            to_earliest=to_earliest,
            to_offset=to_offset,
            since_ms=_since_ms(name, str(wish)) if is_time else None,
            shift_by=shift_by,
        )

    def planned(
        self,
        admin: "Groups",
        committed: "Mapping[Partition, int]",
        partitions: "Sequence[Partition]",
    ) -> "list[Move]":
        """Return where each of the partitions moves."""
        from quorate.cli.groups.group_offsets import moves

        earliest = admin.earliest(partitions)
        latest = admin.latest(partitions)
        if self.since_ms is not None:
            found = admin.since(partitions, self.since_ms)
            wanted = {tp: offset if offset >= 0 else latest[tp] for tp, offset in found.items()}
        elif self.to_offset is not None:
            wanted = dict.fromkeys(partitions, self.to_offset)
        elif self.shift_by is not None:
            wanted = {tp: committed.get(tp, latest[tp]) + self.shift_by for tp in partitions}
        else:
            wanted = earliest if self.to_earliest else latest
        return moves(wanted, committed, earliest, latest)


def reset_options(timeout_ms: int, *, default_partitions: str) -> Callable[[Command], Command]:
    """Return a decorator that adds all options of a ``reset-offsets``, in the order of its help.

    ``default_partitions`` says of which partitions it resets the offsets without --topic.
    """
    options = (
        cluster_options,
        click.option("--group", required=True, help="Name of the group; it must have no members."),
        click.option(
            "--topic",
            "topics",
            multiple=True,
            metavar="TOPIC[:P,P…]",
            help="Topics, or some of their partitions. Default: all partitions "
            f"{default_partitions}.",
        ),
        _wish_options,
        click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing."),
        timeout_option(timeout_ms),
        json_option,
    )

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _wish_options(command: Command) -> Command:
    """Add the options that say where to reset to; the command gets them as ``wish``."""

    @wraps(command)
    def with_wish(**given: Any) -> None:  # noqa: ANN401 - the options of any command
        names = ("to_earliest", "to_latest", "to_offset", "to_datetime", "by_duration", "shift_by")
        wish = ResetWish.of(**{name: given.pop(name) for name in names})
        command(**given, wish=wish)

    decorated: Command = with_wish
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def named_partitions(admin: "Groups", topics: Sequence[str]) -> "list[Partition]":
    """Return the partitions that ``TOPIC[:P,P…]`` name.

    Raises:
        click.ClickException: a topic or a partition does not exist.
    """
    found: list[Partition] = []
    for named in topics:
        topic, colon, numbers = named.partition(":")
        there = admin.partitions_of(topic)
        if not colon:
            found += there
            continue
        for number in numbers.split(","):
            if not number.isdecimal() or (topic, int(number)) not in there:
                raise click.ClickException(
                    f"--topic {named}: {number!r} is no partition of {topic}, "
                    f"which has 0 to {len(there) - 1}"
                )
            found.append((topic, int(number)))
    return found


def show_moves(group: str, planned: "Sequence[Move]", *, dry_run: bool, as_json: bool) -> None:
    """Print what was moved, or would be."""
    if as_json:
        print_json({"group": group, "dry_run": dry_run, "moves": [asdict(m) for m in planned]})
        return
    rows = [
        (move.topic, str(move.partition), number_text(move.before), str(move.after))
        for move in planned
    ]
    print_table(("topic", "partition", "before", "after"), rows)
    echo("nothing was changed (--dry-run)" if dry_run else f"group {group} was reset")


def _since_ms(name: str, text: str) -> int:
    """Parse a time into ms since the epoch; a time without a zone is in the local zone."""
    from quorate.common.durations import parse_duration_ms

    try:
        if name == "--by-duration":
            return int(time.time() * 1000) - parse_duration_ms(text)
        return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError as error:
        raise click.UsageError(f"{name} {text}: {error}") from error
