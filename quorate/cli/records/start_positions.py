"""Where ``quorate consume`` starts to read."""

import re
from typing import Final

import click

EARLIEST: Final = -2
LATEST: Final = -1
TAIL_BASE: Final = -2000
"""librdkafka's numbers: the beginning and the end of a log, and N records before its end, which is
``TAIL_BASE - N``."""


def start_offset(
    from_beginning: bool, offset: str | None, partition: int | None, group: str | None = None
) -> int:
    """Return the offset to start at, or one of librdkafka's numbers.

    Raises:
        click.UsageError: the options contradict each other, or the offset is malformed.
    """
    if from_beginning and offset is not None:
        raise click.UsageError("give --from-beginning or --offset, not both")
    if group is not None and (offset is not None or partition is not None):
        raise click.UsageError(
            "--group reads what is assigned to it, from its committed offsets: leave --offset and "
            "--partition out, or move the group with `quorate groups reset-offsets`"
        )
    if from_beginning or offset == "earliest":
        return EARLIEST
    if offset is None or offset == "latest":
        return LATEST
    if re.fullmatch(r"-[1-9]\d{0,14}", offset):
        return TAIL_BASE + int(offset)
    if not re.fullmatch(r"\d{1,19}", offset):
        raise click.UsageError(f"--offset {offset}: must be a number, earliest or latest")
    if partition is None:
        raise click.UsageError(f"--offset {offset} needs --partition: every partition counts anew")
    return int(offset)
