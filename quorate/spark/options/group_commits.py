"""Which consumer group is to show how far a query is."""

from dataclasses import dataclass

from quorate.spark.errors import OptionError
from quorate.spark.options.given import GivenOptions
from quorate.spark.options.table import COMMIT_GROUP, COMMIT_GROUP_MAY_GO_BACK


@dataclass(frozen=True, slots=True)
class GroupCommits:
    """``may_go_back``: also to an offset below the one that is committed."""

    group_id: str
    may_go_back: bool = False


def read_group_commits(given: GivenOptions) -> GroupCommits | None:
    """None: no group is told.

    Raises:
        OptionError: names the option, its value and what to do.
    """
    group_id = given[COMMIT_GROUP]
    if group_id is not None:
        return GroupCommits(group_id, given[COMMIT_GROUP_MAY_GO_BACK])
    if given.has(COMMIT_GROUP_MAY_GO_BACK):
        raise OptionError(
            f"option {COMMIT_GROUP_MAY_GO_BACK.name} is about a group: give {COMMIT_GROUP.name}, "
            "too"
        )
    return None
