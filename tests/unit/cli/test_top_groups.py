"""``quorate top``: how far consumer groups are behind."""

from collections.abc import Iterable, Sequence

from quorate.cli.groups.group_offsets import Partition
from quorate.cli.top.top_groups import (
    GROUPS_ASKED_MAX,
    GroupOffsets,
    GroupSnapshot,
    group_rates,
    look,
    row,
)
from quorate.cli.top.top_share_groups import ShareGroupSnapshot
from quorate.cli.top.top_view import as_document, lines
from tests.unit.cli.test_top import status

A, B = ("orders", 0), ("orders", 1)


class Cluster:
    """Groups that have all committed the same."""

    def __init__(self, groups: int, ends: dict[Partition, int]) -> None:
        self.groups = [(f"g{number:03}", "stable") for number in range(groups)]
        self.ends = ends
        self.asked: list[str] = []

    def all(self) -> list[tuple[str, str]]:
        return self.groups

    def committed_by_each(self, group_ids: Sequence[str]) -> dict[str, dict[Partition, int]]:
        self.asked += group_ids
        return {group_id: {A: 10, B: 20} for group_id in group_ids if group_id != "g001"}

    def known_ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return {one: self.ends[one] for one in partitions if one in self.ends}


def at(at_s: float, **groups: tuple[int, int]) -> GroupSnapshot:
    """Groups of one partition: (committed, end)."""
    return GroupSnapshot(
        at_s,
        [GroupOffsets(name, "stable", {A: done}, {A: end}) for name, (done, end) in groups.items()],
    )


def test_a_look_adds_up_what_is_known() -> None:
    found = look(1.0, Cluster(3, {A: 15}))
    assert [(one.group, one.lag) for one in found.groups] == [("g000", 5), ("g002", 5)]
    assert found.trouble == ""


def test_a_look_asks_for_so_many_groups() -> None:
    cluster = Cluster(GROUPS_ASKED_MAX + 3, {})
    assert look(1.0, cluster).trouble == "3 more are not asked"
    assert len(cluster.asked) == GROUPS_ASKED_MAX


def test_those_that_are_the_farthest_behind_come_first() -> None:
    before = at(0.0, near=(90, 100), far=(0, 100), done=(100, 100))
    after = at(2.0, near=(95, 100), far=(10, 130), done=(100, 100), new=(0, 7))
    rates = group_rates(before, after, 10)
    assert [(one.group, one.lag, one.committed_per_s, one.caught_up_s) for one in rates] == [
        ("far", 120, 5.0, None),
        ("new", 7, 0.0, None),
        ("near", 5, 2.5, 2.0),
        ("done", 0, 0.0, 0.0),
    ]
    assert [one.group for one in group_rates(before, after, 2)] == ["far", "new"]
    assert row(rates[2]) == ("near", "stable", "1", "5", "2/s", "2 s")
    assert row(rates[0])[-1] == "-"


def test_a_group_that_was_set_back_has_no_negative_rate() -> None:
    (rates,) = group_rates(at(0.0, g=(90, 100)), at(1.0, g=(0, 100)), 10)
    assert (rates.committed_per_s, rates.lag) == (0.0, 100)


def test_what_people_and_scripts_see_of_groups() -> None:
    rates = group_rates(at(0.0, far=(0, 100)), at(2.0, far=(40, 100)), 10)
    seen = GroupSnapshot(2.0, trouble="not allowed")
    shown = lines(status(1), [], [], rates, [], seen, ShareGroupSnapshot({}))
    assert shown[-3].startswith("group  state ")
    assert shown[-2].split() == ["far", "stable", "1", "60", "20/s", "3", "s"]
    assert shown[-1] == "groups: not allowed"
    (group,) = as_document(status(1), [], [], rates, [])["groups"]
    assert (group["group"], group["lag"], group["caught_up_s"]) == ("far", 60, 3.0)
