"""``quorate top``: share groups, their records in flight, their lag and their deliveries."""

from quorate.cli.top.top_groups import GroupSnapshot
from quorate.cli.top.top_share_groups import (
    SHARE_GROUPS_ASKED_MAX,
    ShareGroupSnapshot,
    look,
    row,
    share_group_rates,
)
from quorate.cli.top.top_view import as_document, lines
from quorate.client.errors import RequestFailed
from quorate.client.share_groups import ShareOffset
from tests.unit.cli.test_top import look as figures
from tests.unit.cli.test_top import status

WORKERS = {"group": "workers"}
IN_FLIGHT, DELIVERED = "InFlightMessageCount", "GroupRecordsAcquired"
BEFORE = figures(10.0, (1, DELIVERED, WORKERS, 100), (2, DELIVERED, WORKERS, 50))
AFTER = figures(
    12.0,
    (1, DELIVERED, WORKERS, 160),
    (2, DELIVERED, WORKERS, 90),
    (1, DELIVERED, {"group": "others"}, 8),
    (1, IN_FLIGHT, WORKERS, 30),
    (2, IN_FLIGHT, WORKERS, 4),
    (1, IN_FLIGHT, {"group": "workers", "topic": "jobs", "partition": "0"}, 30),
)
SEEN = ShareGroupSnapshot({"workers": ("stable", 1_200), "others": ("empty", 5_000)})


class Cluster:
    """Share groups with two partitions each; nobody has read one of them yet."""

    def __init__(self, count: int) -> None:
        self.names = [f"g{number:02}" for number in range(count)]
        self.asked: list[str] = []

    def all(self) -> list[tuple[str, str]]:
        return [(name, "stable") for name in self.names]

    def offsets(self, group_id: str) -> list[ShareOffset]:
        self.asked.append(group_id)
        if group_id == "g01":
            raise RequestFailed(69, "deleted")
        return [
            ShareOffset(topic="jobs", partition=0, start=3, lag=7),
            ShareOffset(topic="jobs", partition=1, start=None, lag=None),
        ]


def test_a_look_adds_up_what_is_known_and_leaves_out_what_is_gone() -> None:
    assert look(Cluster(3)).groups == {"g00": ("stable", 7), "g02": ("stable", 7)}


def test_a_look_asks_for_so_many_share_groups() -> None:
    cluster = Cluster(SHARE_GROUPS_ASKED_MAX + 2)
    assert look(cluster).trouble == "2 more are not asked"
    assert len(cluster.asked) == SHARE_GROUPS_ASKED_MAX


def test_rates_are_of_all_brokers_and_those_far_behind_come_first() -> None:
    others, workers = share_group_rates(BEFORE, AFTER, SEEN, 10)
    assert (others.group, others.lag, others.in_flight) == ("others", 5_000, 0)
    assert (workers.in_flight, workers.delivered_per_s) == (34, 50.0)
    assert row(workers) == ("workers", "stable", "34", "1,200", "50/s")
    assert [one.group for one in share_group_rates(BEFORE, AFTER, SEEN, 1)] == ["others"]


def test_a_group_that_begins_to_count_anew_has_no_negative_rate() -> None:
    restarted = figures(14.0, (1, DELIVERED, WORKERS, 10))
    assert share_group_rates(AFTER, restarted, SEEN, 2)[1].delivered_per_s == 5.0


def test_what_people_and_scripts_see_of_share_groups() -> None:
    rates = share_group_rates(BEFORE, AFTER, SEEN, 10)
    trouble = ShareGroupSnapshot(SEEN.groups, "3 more are not asked")
    shown = lines(status(1), [], [], [], rates, GroupSnapshot(0.0), trouble)
    assert shown[-4].startswith("share group  state ")
    assert shown[-2].split() == ["workers", "stable", "34", "1,200", "50/s"]
    assert shown[-1] == "share groups: 3 more are not asked"
    group = as_document(status(1), [], [], [], rates)["share_groups"][1]
    assert (group["group"], group["in_flight"], group["lag"]) == ("workers", 34, 1_200)
