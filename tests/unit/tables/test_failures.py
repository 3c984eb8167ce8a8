"""Why a table stands still, as the quorum keeps it and ``quorate tables status`` tells it."""

import re
from pathlib import Path

import pytest
import yaml

from quorate.client.results import Pipeline, PipelineStep
from quorate.tables.service.failures import record_failure
from quorate.tables.service.run_owners import (
    ERROR_LENGTH_MAX,
    RunOwner,
    TableFailure,
    failure_of,
    parse_owner,
)
from quorate.tables.service.table_metrics import COMMITS, FAILED, FILES, LAG_OFFSETS, LAG_SECONDS
from tests.support.metadata import topic_id_of
from tests.unit.pipeline.world import NAME, Cluster, LocalAdminClient, never

RUN = "tables-1 host process 17 9f3c"
SINCE_MS = 1_700_000_000_000
ALERTS = Path(__file__).parents[3] / "deploy" / "prometheus" / "alerts-tables.yml"


@pytest.mark.parametrize(
    "owner",
    [
        RunOwner(RUN),
        RunOwner(RUN, TableFailure(SINCE_MS, "the disk; is: full\nat /x")),
        RunOwner(RUN, TableFailure(SINCE_MS, "x"), tries_again=True),
    ],
)
def test_an_owner_is_read_back(owner: RunOwner) -> None:
    assert parse_owner(owner.text) == owner
    assert (owner.service_id, owner.process) == ("tables-1", "tables-1 host process 17")


def test_other_texts_are_owners_without_a_failure_and_long_errors_are_cut() -> None:
    for text in ("", "host process 7 ab", f"{RUN}; failed since yesterday: x"):
        assert parse_owner(text) == RunOwner(text)
    found = parse_owner(RunOwner(RUN, TableFailure(SINCE_MS, "x" * 5_000)).text)
    assert found.failure == TableFailure(SINCE_MS, "x" * ERROR_LENGTH_MAX)


class World:
    """The quorum, and a table service whose clock stands still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = Cluster()
        self.admin = LocalAdminClient(self.cluster, never)
        self.state: Pipeline | None = None
        self.now_ms = SINCE_MS
        self._runs = 0
        monkeypatch.setattr(
            "quorate.tables.service.failures.time.time_ns", lambda: self.now_ms * 1_000_000
        )

    def begin(self) -> Pipeline:
        self._runs += 1
        failure = None if self.state is None else failure_of(self.state, None)
        owner = RunOwner(f"{RUN}{self._runs}", failure, tries_again=True)
        self.state = self.admin.begin_pipeline_run(
            NAME, owner=owner.text, lease_ms=10_000, sink="iceberg:t#1"
        )
        return self.state

    def end(self, state: Pipeline) -> None:
        self.state = self.admin.renew_pipeline_run(NAME, run_epoch=state.run_epoch, lease_ms=0)

    def commit(self, state: Pipeline, start: int, end: int) -> None:
        step = PipelineStep(
            topic="t", topic_id=topic_id_of("t", 0), partition=0, start=start, end=end
        )
        self.state = self.admin.commit_pipeline(
            NAME, run_epoch=state.run_epoch, number=1, steps=[step], lease_ms=10_000, rewound=False
        )

    def fail(self, error: str) -> int:
        """Record a failure; return how many requests that took."""
        self._runs += 1
        before = len(self.cluster.asked)
        record_failure(self.admin, NAME, self.state, error, f"{RUN}{self._runs}")
        asked = len(self.cluster.asked) - before
        if asked:
            # What the next look at the quorum finds.
            self.state = self.admin.renew_pipeline_run(
                NAME, run_epoch=self.cluster.metadata.image.pipelines[NAME].run_epoch, lease_ms=0
            )
        return asked

    def told(self, lag: int | None = 1) -> TableFailure | None:
        assert self.state is not None
        return failure_of(self.state, lag)


def test_a_failure_lasts_until_a_run_has_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.end(world.begin())
    assert world.told() is None
    assert world.fail("the storage is away") == 1
    assert world.told(lag=0) == TableFailure(SINCE_MS, "the storage is away")
    world.now_ms += 60_000
    again = world.begin()
    assert world.told() == TableFailure(SINCE_MS, "the storage is away")
    assert world.told(lag=0) is None
    world.end(again)
    world.fail("the disk is full")
    assert world.told() == TableFailure(SINCE_MS, "the disk is full"), "since the first failure"
    state = world.begin()
    world.commit(state, -1, 5)
    assert world.told() is None
    world.end(state)
    assert world.told() is None
    world.fail("the disk is full")
    assert world.told() == TableFailure(SINCE_MS + 60_000, "the disk is full")


def test_a_table_that_never_began_has_an_error_too_and_it_is_written_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    assert world.fail("no warehouse") == 1
    assert world.fail("no warehouse") == 0
    assert world.fail("no catalog") == 1
    assert world.told() == TableFailure(SINCE_MS, "no catalog")
    state = world.begin()
    world.commit(state, -1, 5)
    assert world.told() is None


def test_who_is_not_in_charge_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    state = world.begin()
    record_failure(world.admin, NAME, state, "it slept", "tables-2 host process 5 ab")
    world.commit(state, -1, 5)
    assert parse_owner(world.state.owner if world.state else "").failure is None


def test_the_alerts_are_about_figures_of_tables() -> None:
    [group] = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    known = {one.name for one in (COMMITS, FAILED, FILES, LAG_OFFSETS, LAG_SECONDS)}
    for rule in group["rules"]:
        found = set(re.findall(r"quorate_\w+", rule["expr"]))
        assert found, rule["alert"]
        assert found <= known, rule["alert"]
