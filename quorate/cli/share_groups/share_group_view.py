"""One share group as ``quorate share-groups describe`` shows it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from quorate.cli.groups.group_view import number_text
from quorate.cli.output import echo
from quorate.cli.tables import print_table

if TYPE_CHECKING:
    from quorate.client.results import Metric
    from quorate.client.share_groups import ShareGroup, ShareOffset

HEADS: Final = ("topic", "partition", "start", "lag", "members")
_IN_FLIGHT: Final = ("ShareGroupMetrics", "InFlightMessageCount")


@dataclass(frozen=True)
class ShareGroupView:
    """The members of a share group, and how far it is.

    ``in_flight`` has the records of all partitions from the first that is not accepted or rejected
    to the last that was handed out. It is None if the brokers do not tell their figures.
    """

    group: "ShareGroup"
    offsets: "Sequence[ShareOffset]"
    in_flight: int | None

    @property
    def lag(self) -> int:
        return sum(one.lag or 0 for one in self.offsets)

    def as_document(self) -> dict[str, Any]:
        """Return the group as the JSON document that scripts read."""
        return {
            "group": self.group.name,
            "state": self.group.state,
            "assignor": self.group.assignor,
            "lag": self.lag,
            "in_flight": self.in_flight,
            "members": [asdict(one) for one in self.group.members],
            "partitions": [asdict(one) for one in self.offsets],
        }

    def show(self) -> None:
        """Print the group for people."""
        echo(
            f"{self.group.name}: {self.group.state}, {len(self.group.members)} members, "
            f"lag {self.lag:,}, {number_text(self.in_flight)} in flight"
        )
        if self.offsets:
            print_table(HEADS, [self._row(one) for one in self.offsets])

    def _row(self, one: "ShareOffset") -> tuple[str, ...]:
        place = one.topic, one.partition
        return (
            one.topic,
            str(one.partition),
            number_text(one.start),
            number_text(one.lag),
            str(sum(place in member.partitions for member in self.group.members)),
        )


def in_flight_of(metrics: "Sequence[Metric] | None", group_id: str) -> int | None:
    """Return the records of a group in flight, from the figures of the brokers."""
    if metrics is None:
        return None
    return sum(
        int(one.value)
        for one in metrics
        if (one.group, one.name) == _IN_FLIGHT and one.tags["group"] == group_id
    )
