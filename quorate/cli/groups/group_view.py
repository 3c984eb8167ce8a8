"""One consumer group as ``quorate groups describe`` shows it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from quorate.cli.groups.group_offsets import Description, GroupPartition, group_partitions
from quorate.cli.output import echo
from quorate.cli.tables import print_table

if TYPE_CHECKING:
    from quorate.cli.groups.group_offsets import Groups

HEADS: Final = ("topic", "partition", "committed", "end", "lag", "client", "host")


@dataclass(frozen=True)
class GroupView:
    """The members and the offsets of a group."""

    group: str
    described: Description
    partitions: Sequence[GroupPartition]

    @classmethod
    def of(cls, admin: "Groups", group: str) -> Self:
        """Ask for the group.

        Raises:
            click.ClickException: there is no such group, or no broker answers.
        """
        described = admin.describe(group)
        committed = admin.committed(group)
        assigned = {
            (tp.topic, tp.partition)
            for member in described.members
            for tp in member.assignment.topic_partitions
        }
        ends = admin.latest({*committed, *assigned})
        return cls(group, described, group_partitions(described, committed, ends))

    @property
    def lag(self) -> int:
        return sum(one.lag or 0 for one in self.partitions)

    def as_document(self) -> dict[str, Any]:
        """Return the group as the JSON document that scripts read."""
        return {
            "group": self.group,
            "state": self.described.state.name.lower(),
            "coordinator": self.described.coordinator.id,
            "protocol": self.described.partition_assignor,
            "members": len(self.described.members),
            "lag": self.lag,
            "partitions": [{**asdict(one), "lag": one.lag} for one in self.partitions],
        }

    def show(self) -> None:
        """Print the group for people."""
        echo(
            f"{self.group}: {self.described.state.name.lower()}, "
            f"{len(self.described.members)} members, "
            f"coordinator broker {self.described.coordinator.id}, lag {self.lag:,}"
        )
        if self.partitions:
            print_table(HEADS, [_row(one) for one in self.partitions])


def _row(one: GroupPartition) -> tuple[str, ...]:
    return (
        one.topic,
        str(one.partition),
        number_text(one.committed),
        number_text(one.end),
        number_text(one.lag),
        one.client_id,
        one.host,
    )


def number_text(value: int | None) -> str:
    """Format an offset; one that is not known is a dash."""
    return "-" if value is None else str(value)
