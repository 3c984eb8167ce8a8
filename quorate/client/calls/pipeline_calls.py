"""Pipelines: their progress, which the run in charge moves forward."""

from collections.abc import Sequence

from quorate.client.call_steps import Steps, ToAnyBroker, ToController
from quorate.client.errors import RequestFailed
from quorate.client.results import Pipeline, PipelineStep, PipelineTopic
from quorate_proto.v1 import admin_pb2, errors_pb2


def begin_run(
    name: str, *, owner: str, lease_ms: int, sink: str, take_over: bool = False
) -> Steps[Pipeline]:
    """Begin a run, which replaces the runs before it; ``run_epoch`` of the answer is its own epoch.

    ``owner`` names this very run, so that a retry is not mistaken for another run. The run counts
    as alive for ``lease_ms`` after each sign of life. With ``take_over``, it also replaces a run
    that is alive.

    Raises:
        RequestFailed: NON_EMPTY_GROUP if a run is alive, INVALID_REQUEST if it has another sink.
    """
    request = admin_pb2.AlterPipelineRequest(
        name=name,
        begin=admin_pb2.BeginPipelineRun(
            owner=owner, lease_ms=lease_ms, sink=sink, take_over=take_over
        ),
    )
    return (yield from _altered(request, "beginning a run"))


def commit(
    name: str,
    *,
    run_epoch: int,
    number: int,
    steps: Sequence[PipelineStep],
    rows: int = 0,
    lease_ms: int,
    rewound: bool = False,
) -> Steps[Pipeline]:
    """Move partitions forward, all of them or none. ``number`` counts the commits of a run, from 1.

    Raises:
        RequestFailed: FENCED_MEMBER_EPOCH if another run is in charge; INVALID_REQUEST if a
            partition is not where its step starts.
    """
    request = admin_pb2.AlterPipelineRequest(
        name=name,
        commit=admin_pb2.CommitPipeline(
            run_epoch=run_epoch,
            commit=number,
            lease_ms=lease_ms,
            steps=[one.to_proto() for one in steps],
            rows=rows,
            rewound=rewound,
        ),
    )
    return (yield from _altered(request, "committing offsets"))


def renew_run(name: str, *, run_epoch: int, lease_ms: int) -> Steps[Pipeline]:
    """Give a sign of life; a ``lease_ms`` of 0 says that the run has ended.

    Raises:
        RequestFailed: FENCED_MEMBER_EPOCH if another run is in charge.
    """
    request = admin_pb2.AlterPipelineRequest(
        name=name, renew=admin_pb2.RenewPipelineRun(run_epoch=run_epoch, lease_ms=lease_ms)
    )
    return (yield from _altered(request, "renewing a run"))


def reset(
    name: str, topics: Sequence[PipelineTopic], *, expected_version: int = 0
) -> Steps[Pipeline]:
    """Set partitions to other offsets; partitions at -1, or not named, are kept. No run is in
    charge then.

    Raises:
        RequestFailed: NON_EMPTY_GROUP if a run is alive, RESOURCE_NOT_FOUND, INVALID_UPDATE_VERSION
            if the pipeline is not at ``expected_version``.
    """
    request = admin_pb2.AlterPipelineRequest(
        name=name,
        reset=admin_pb2.ResetPipeline(
            topics=[one.to_proto() for one in topics], expected_version=expected_version
        ),
    )
    return (yield from _altered(request, "resetting a pipeline"))


def delete(name: str) -> Steps[None]:
    """Delete the progress of a pipeline. The files that it has written are kept.

    Raises:
        RequestFailed: NON_EMPTY_GROUP if a run is alive, RESOURCE_NOT_FOUND.
    """
    request = admin_pb2.AlterPipelineRequest(name=name, delete=admin_pb2.DeletePipeline())
    yield from _altered(request, "deleting a pipeline")


def describe(names: Sequence[str] = ()) -> Steps[list[Pipeline]]:
    """Return the named pipelines that exist, sorted by name.

    Without names, return all pipelines that the client may see.

    Raises:
        RequestFailed: GROUP_AUTHORIZATION_FAILED.
    """
    request = admin_pb2.DescribePipelinesRequest(names=names)
    answer: admin_pb2.DescribePipelinesResponse = yield ToAnyBroker("DescribePipelines", request)
    if answer.error_code != errors_pb2.NONE:
        raise RequestFailed(answer.error_code, answer.error_message)
    return [Pipeline.from_proto(one.pipeline, alive=one.alive) for one in answer.pipelines]


def _altered(request: admin_pb2.AlterPipelineRequest, what: str) -> Steps[Pipeline]:
    answer: admin_pb2.AlterPipelineResponse = yield ToController(
        "AlterPipeline", request, f"{what} of pipeline {request.name}"
    )
    return Pipeline.from_proto(answer.pipeline, alive=answer.pipeline.run.lease_until_ms > 0)
