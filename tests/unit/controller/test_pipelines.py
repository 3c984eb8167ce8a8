"""Runs of pipelines decided: who is in charge, what a commit may move, what a reset leaves."""

from typing import Any

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.controller.managers import pipeline_manager
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.common.types import BrokerId, ControllerEpoch
from quorate.metadata_log.image import PipelineState
from quorate.metadata_log.records import QuorumVoterSet
from quorate_proto.v1 import admin_pb2, errors_pb2, metadata_pb2
from tests.support.metadata import MetadataLogBuilder, quorum_voter, topic_id_of

TENURE = ControllerTenure(BrokerId(1), ControllerEpoch(1))
LEASE_MS = 30_000
T = topic_id_of("t")


class World:
    """A metadata log to which decisions are applied, and a clock."""

    def __init__(self, *, level: int = 4) -> None:
        self.log = MetadataLogBuilder(begun=False)
        voters = (quorum_voter(1),)
        self.log.write(QuorumVoterSet(expected_version=0, voters=voters, metadata_version=level))
        self.log.start_broker(1)
        self.log.elect_controller(1)
        self.now_ms = 1_000_000

    def alter(self, name: str = "p", **action: object) -> PipelineState | None:
        request = admin_pb2.AlterPipelineRequest(name=name, **action)  # type: ignore[arg-type]
        decision = pipeline_manager.alter(
            self.log.image, request, tenure=TENURE, now_ms=self.now_ms
        )
        if decision.operation is not None:
            assert self.log.transact(decision.operation).ok
        return self.log.image.pipelines.get(name)

    def begin(self, owner: str = "a", *, sink: str = "/s", take_over: bool = False) -> int:
        asked = admin_pb2.BeginPipelineRun(
            owner=owner, lease_ms=LEASE_MS, sink=sink, take_over=take_over
        )
        after = self.alter(begin=asked)
        assert after is not None
        return after.run_epoch

    def commit(
        self,
        run_epoch: int,
        number: int,
        *steps: tuple[int, int, int],
        topic_id: bytes = T,
        rewound: bool = False,
    ) -> PipelineState:
        """``steps``: partition, from, to."""
        asked = admin_pb2.CommitPipeline(
            run_epoch=run_epoch, commit=number, lease_ms=LEASE_MS, rows=10, rewound=rewound
        )
        for partition, start, end in steps:
            step = asked.steps.add(topic="t", topic_id=topic_id, partition=partition, to=end)
            setattr(step, "from", start)
        after = self.alter(commit=asked)
        assert after is not None
        return after

    def reset(self, *offsets: int, topic_id: bytes = T, version: int = 0) -> PipelineState:
        wanted = metadata_pb2.PipelineTopic(topic="t", topic_id=topic_id, offsets=offsets)
        asked = admin_pb2.ResetPipeline(topics=[wanted], expected_version=version)
        after = self.alter(reset=asked)
        assert after is not None
        return after

    def end(self, run_epoch: int) -> None:
        self.alter(renew=admin_pb2.RenewPipelineRun(run_epoch=run_epoch))


@pytest.fixture
def world() -> World:
    return World()


def offsets(pipeline: PipelineState) -> tuple[int, ...]:
    (topic,) = pipeline.topics
    return topic.offsets


def refusal(code: int) -> Any:  # noqa: ANN401 - what pytest has for it
    return pytest.raises(KafkaError, match=errors_pb2.ErrorCode.Name(code))  # type: ignore[arg-type]


def test_a_run_moves_its_partitions_and_ends(world: World) -> None:
    run = world.begin()
    assert offsets(world.commit(run, 1, (0, -1, 7), (2, -1, 5))) == (7, -1, 5)
    after = world.commit(run, 2, (0, 7, 9))
    assert offsets(after) == (9, -1, 5)
    assert (after.run.commit_epoch, after.run.commit, after.run.rows) == (run, 2, 20)
    assert pipeline_manager.is_alive(after, world.now_ms + LEASE_MS - 1)
    assert not pipeline_manager.is_alive(after, world.now_ms + LEASE_MS)
    world.end(run)
    assert not pipeline_manager.is_alive(world.log.image.pipelines["p"], world.now_ms)


def test_a_second_run_waits_until_the_first_falls_silent(world: World) -> None:
    first = world.begin("a")
    with refusal(errors_pb2.NON_EMPTY_GROUP):
        world.begin("b")
    world.now_ms += LEASE_MS
    second = world.begin("b")
    assert second > first


def test_a_run_may_be_taken_over_and_is_then_out_of_charge(world: World) -> None:
    first = world.begin("a")
    world.commit(first, 1, (0, -1, 7))
    second = world.begin("b", take_over=True)
    with refusal(errors_pb2.FENCED_MEMBER_EPOCH):
        world.commit(first, 2, (0, 7, 9))
    with refusal(errors_pb2.FENCED_MEMBER_EPOCH):
        world.alter(renew=admin_pb2.RenewPipelineRun(run_epoch=first, lease_ms=1))
    after = world.commit(second, 1, (0, 7, 9))
    assert (offsets(after), after.run.owner) == ((9,), "b")


def test_a_retry_of_a_beginning_finds_its_own_run_alive(world: World) -> None:
    assert world.begin("a") < world.begin("a")


def test_a_retry_of_a_commit_is_not_carried_out_twice(world: World) -> None:
    run = world.begin()
    once = world.commit(run, 1, (0, -1, 7))
    again = world.commit(run, 1, (0, -1, 7))
    assert again == once


@pytest.mark.parametrize(
    ("number", "step"),
    [
        (1, (0, 7, 9)),
        (3, (0, 7, 9)),
        (2, (0, 6, 9)),
        (2, (0, -1, 9)),
        (2, (1, 0, 9)),
        (2, (0, 7, -1)),
    ],
)
def test_a_commit_from_elsewhere_moves_nothing(
    world: World, number: int, step: tuple[int, int, int]
) -> None:
    run = world.begin()
    world.commit(run, 1, (0, -1, 7))
    with refusal(errors_pb2.INVALID_REQUEST):
        world.commit(run, number, (2, -1, 1), step)
    assert offsets(world.log.image.pipelines["p"]) == (7,)


def test_a_topic_created_anew_is_not_taken_for_the_old_one(world: World) -> None:
    run = world.begin()
    world.commit(run, 1, (0, -1, 7))
    with refusal(errors_pb2.INCONSISTENT_TOPIC_ID):
        world.commit(run, 2, (0, 7, 9), topic_id=topic_id_of("t", 1))
    world.end(run)
    after = world.reset(-1, 3, topic_id=topic_id_of("t", 1))
    assert offsets(after) == (-1, 3)
    assert after.topics[0].topic_id == topic_id_of("t", 1)


def test_a_reset_puts_every_run_out_of_charge_and_has_the_sink_cleared(world: World) -> None:
    run = world.begin()
    world.commit(run, 1, (0, -1, 7), (1, -1, 8))
    with refusal(errors_pb2.NON_EMPTY_GROUP):
        world.reset(3)
    world.now_ms += LEASE_MS
    after = world.reset(3)
    assert (offsets(after), after.rewound) == ((3, 8), True)
    with refusal(errors_pb2.FENCED_MEMBER_EPOCH):
        world.commit(run, 2, (0, 3, 9))
    again = world.begin()
    assert world.log.image.pipelines["p"].rewound
    assert world.log.image.pipelines["p"].run.commit_epoch == run, "what is committed stays known"
    assert not world.commit(again, 1, (0, 3, 9)).rewound


def test_a_reset_of_what_has_moved_is_refused(world: World) -> None:
    run = world.begin()
    version = world.commit(run, 1, (0, -1, 7)).version
    world.end(run)
    with refusal(errors_pb2.INVALID_UPDATE_VERSION):
        world.reset(3, version=version)
    assert offsets(world.reset(3, version=world.log.image.pipelines["p"].version)) == (3,)


def test_a_pipeline_that_has_begun_keeps_to_its_sink(world: World) -> None:
    run = world.begin(sink="/a")
    run = world.begin(sink="/b")
    world.commit(run, 1, (0, -1, 7))
    with refusal(errors_pb2.INVALID_REQUEST):
        world.begin(sink="/c")
    world.end(run)
    world.reset(0)
    world.begin(sink="/c")


def test_a_pipeline_is_deleted_once_nothing_runs(world: World) -> None:
    run = world.begin()
    with refusal(errors_pb2.NON_EMPTY_GROUP):
        world.alter(delete=admin_pb2.DeletePipeline())
    world.end(run)
    assert world.alter(delete=admin_pb2.DeletePipeline()) is None


@pytest.mark.parametrize(
    "action",
    [
        {"commit": admin_pb2.CommitPipeline(run_epoch=1, commit=1)},
        {"renew": admin_pb2.RenewPipelineRun(run_epoch=1)},
        {"reset": admin_pb2.ResetPipeline()},
        {"delete": admin_pb2.DeletePipeline()},
    ],
    ids=lambda action: next(iter(action)),
)
def test_what_is_not_there_is_named(world: World, action: dict[str, Any]) -> None:
    with refusal(errors_pb2.RESOURCE_NOT_FOUND):
        world.alter("none", **action)


@pytest.mark.parametrize("name", ["", "a/b", ".."])
def test_a_name_that_is_none_is_refused(world: World, name: str) -> None:
    with refusal(errors_pb2.INVALID_REQUEST):
        world.alter(name, begin=admin_pb2.BeginPipelineRun(owner="a"))


def test_nothing_asked_is_refused(world: World) -> None:
    with refusal(errors_pb2.INVALID_REQUEST):
        world.alter()


def test_b4_a_cluster_that_keeps_no_pipelines_says_what_to_raise() -> None:
    world = World(level=3)
    with pytest.raises(KafkaError, match="quorate features upgrade") as refused:
        world.begin()
    assert refused.value.code == errors_pb2.UNSUPPORTED_VERSION
