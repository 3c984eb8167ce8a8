"""The options of a query whose source is a share group."""

from dataclasses import dataclass
from typing import Final

from quorate.spark.errors import OptionError
from quorate.spark.options.connection_options import ConnectionOptions, read_connection_options
from quorate.spark.options.given_options import GivenOptions
from quorate.spark.options.option_table import (
    ASSIGN,
    COMMIT_GROUP,
    KEY_FORMAT,
    MAX_OFFSETS_PER_TRIGGER,
    MIN_OFFSETS_PER_TRIGGER,
    MIN_PARTITIONS,
    SHARE_GROUP,
    STARTING_OFFSETS,
    STARTING_OFFSETS_BY_TIMESTAMP,
    STARTING_TIMESTAMP,
    SUBSCRIBE,
    SUBSCRIBE_PATTERN,
    VALUE_FORMAT,
)

RECORDS_MAX: Final = 10_000
"""The records of a batch where no option says how many. All of them are locked until the batch has
succeeded."""

_REFUSED: Final = {
    SUBSCRIBE_PATTERN: "name the topics with subscribe",
    ASSIGN: "name the topics with subscribe",
    STARTING_OFFSETS: "the group knows where it begins (share.auto.offset.reset)",
    STARTING_OFFSETS_BY_TIMESTAMP: "the group knows where it begins (share.auto.offset.reset)",
    STARTING_TIMESTAMP: "the group knows where it begins (share.auto.offset.reset)",
    MIN_OFFSETS_PER_TRIGGER: "records are taken as they come",
    COMMIT_GROUP: "the share group shows the progress",
    KEY_FORMAT: "decode the column in the query",
    VALUE_FORMAT: "decode the column in the query",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOptions:
    """The checked options of such a query."""

    connection: ConnectionOptions
    group_id: str
    topics: tuple[str, ...]
    records_max: int = RECORDS_MAX
    partitions: int = 1
    """The number of tasks among which the records of a batch are divided."""


def share_options_of(given: GivenOptions) -> ShareOptions:
    """Check the given options.

    Raises:
        OptionError: names the option, and what to do.
    """
    for option, why in _REFUSED.items():
        if given.has(option):
            raise OptionError(f"option {option.name} is not for a query with shareGroup: {why}")
    group_id, subscription = given[SHARE_GROUP], given[SUBSCRIBE]
    if not group_id:
        raise OptionError(f"option {SHARE_GROUP.name} is empty: name a share group")
    if subscription is None:
        raise OptionError(f"option {SUBSCRIBE.name} is missing: name the topics of the share group")
    return ShareOptions(
        connection=read_connection_options(given),
        group_id=group_id,
        topics=subscription.topics,
        records_max=given[MAX_OFFSETS_PER_TRIGGER] or RECORDS_MAX,
        partitions=given[MIN_PARTITIONS] or 1,
    )
