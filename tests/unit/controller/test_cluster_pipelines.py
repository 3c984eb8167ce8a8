"""Pipelines in a whole cluster: every broker learns how far they are, and failovers keep it."""

from quorate.broker.changes.table import ALTER_PIPELINE
from quorate.common.types import ControllerEpoch
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.metadata import topic_id_of
from tests.support.waiting import async_wait_until
from tests.unit.controller.cluster import Cluster

BEGIN = admin_pb2.BeginPipelineRun(owner="a", lease_ms=30_000, sink="/s")


async def alter(
    cluster: Cluster, **action: admin_pb2.BeginPipelineRun | admin_pb2.CommitPipeline
) -> admin_pb2.AlterPipelineResponse:
    request = admin_pb2.AlterPipelineRequest(name="p", **action)  # type: ignore[arg-type]
    return await cluster.active.perform(ALTER_PIPELINE, request)


def committed(run_epoch: int, number: int, start: int, end: int) -> admin_pb2.CommitPipeline:
    asked = admin_pb2.CommitPipeline(run_epoch=run_epoch, commit=number, lease_ms=30_000, rows=1)
    step = asked.steps.add(topic="t", topic_id=topic_id_of("t"), partition=0, to=end)
    setattr(step, "from", start)
    return asked


async def test_f3_a_run_outlives_the_controller_that_let_it_begin(cluster: Cluster) -> None:
    begun = (await alter(cluster, begin=BEGIN)).pipeline
    assert begun.run_epoch == begun.version == cluster.image.pipelines["p"].run_epoch
    assert begun.run.started_ms == cluster.wall_clock_ms
    first = await alter(cluster, commit=committed(begun.run_epoch, 1, -1, 7))
    assert (first.error_code, list(first.pipeline.topics[0].offsets)) == (0, [7])
    await cluster.kill(1)
    await cluster.when(lambda: cluster.controller is not None)
    assert cluster.image.controller_epoch > ControllerEpoch(1)
    second = await alter(cluster, commit=committed(begun.run_epoch, 2, 7, 9))
    assert (second.error_code, second.pipeline.version) == (0, cluster.image.pipelines["p"].version)
    again = await alter(cluster, commit=committed(begun.run_epoch, 2, 7, 9))
    assert (again.error_code, again.pipeline) == (0, second.pipeline), "a retry changes nothing"
    live = [one for one in cluster.brokers.values() if one.broker_id != 1]
    offsets = second.pipeline.topics[0].offsets
    await async_wait_until(
        lambda: all(
            one.follower.image.pipelines["p"].topics[0].offsets == tuple(offsets) for one in live
        ),
        "every broker to know the offsets",
    )


async def test_of_two_runs_one_moves_the_pipeline(cluster: Cluster) -> None:
    first = (await alter(cluster, begin=BEGIN)).pipeline.run_epoch
    other = admin_pb2.BeginPipelineRun(owner="b", lease_ms=30_000, sink="/s")
    refused = await alter(cluster, begin=other)
    assert refused.error_code == errors_pb2.NON_EMPTY_GROUP
    other.take_over = True
    second = (await alter(cluster, begin=other)).pipeline.run_epoch
    late = await alter(cluster, commit=committed(first, 1, -1, 7))
    assert late.error_code == errors_pb2.FENCED_MEMBER_EPOCH
    assert (await alter(cluster, commit=committed(second, 1, -1, 5))).error_code == 0
    assert cluster.image.pipelines["p"].topics[0].offsets == (5,)
