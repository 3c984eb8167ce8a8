"""What ``quorate groups`` makes of offsets and members."""

from dataclasses import dataclass, field
from typing import Any

import click
import pytest
from click.testing import CliRunner

from quorate.cli.groups.group_offsets import GroupPartition, Move, group_partitions, moves
from quorate.cli.groups.groups_command import groups

A, B, C = ("orders", 0), ("orders", 1), ("orders", 2)


@dataclass
class FakeTp:
    topic: str
    partition: int


@dataclass
class FakeAssignment:
    topic_partitions: list[FakeTp]


@dataclass
class FakeMember:
    assignment: FakeAssignment
    member_id: str = "m-1"
    client_id: str = "c"
    host: str = "/h"


@dataclass
class FakeGroup:
    members: list[FakeMember] = field(default_factory=list)


def test_what_is_committed_or_assigned_is_shown_with_its_owner() -> None:
    described: Any = FakeGroup([FakeMember(FakeAssignment([FakeTp(*B), FakeTp(*C)]))])
    rows = group_partitions(described, {A: 5, B: 7}, {A: 15, B: 6, C: 3})
    assert [(row.partition, row.committed, row.lag, row.client_id) for row in rows] == [
        (0, 5, 10, ""),
        (1, 7, 0, "c"),
        (2, None, None, "c"),
    ]


def test_a_lag_whose_end_nobody_knows_is_not_zero() -> None:
    described: Any = FakeGroup()
    assert group_partitions(described, {A: 5}, {}) == [
        GroupPartition(topic="orders", partition=0, committed=5, end=None)
    ]


def test_offsets_outside_of_a_log_end_at_its_edges() -> None:
    log = {A: 10, B: 10, C: 10}, {A: 20, B: 20, C: 20}
    assert moves({A: 3, B: 15, C: 99}, {A: 12}, *log) == [
        Move(topic="orders", partition=0, before=12, after=10),
        Move(topic="orders", partition=1, before=None, after=15),
        Move(topic="orders", partition=2, before=None, after=20),
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "give exactly one of --to-earliest"),
        (["--to-earliest", "--to-latest"], "give exactly one of"),
        (["--to-datetime", "yesterday"], "--to-datetime yesterday"),
        (["--by-duration", "soon"], "--by-duration soon"),
        (["--to-offset", "-1"], "--to-offset"),
    ],
)
def test_a_reset_without_one_clear_wish_is_refused(flags: list[str], message: str) -> None:
    asked = ["reset-offsets", "--bootstrap-server", "127.0.0.1:1", "--group", "g", *flags]
    result = CliRunner().invoke(groups, asked)
    assert result.exit_code == click.UsageError.exit_code
    assert message in result.output
