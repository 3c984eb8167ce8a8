"""Pipelines: how far each is, moved by the run in charge of it."""

from collections.abc import Sequence

from quorate.client.errors import RequestFailed
from quorate.client.results import Pipeline, PipelineStep, PipelineTopic
from quorate.client.steps import Steps, ToAnyBroker, ToController
from quorate_proto.v1 import admin_pb2, errors_pb2


def begin_run(
    name: str, *, owner: str, lease_ms: int, sink: str, take_over: bool = False
) -> Steps[Pipeline]:
    """Begins a run: the ones before it are out of charge. ``run_epoch`` of the answer is its own.

    ``owner`` names this very run, so that a retry is not taken for another. It counts as alive for
    ``lease_ms`` after each sign of life; ``take_over``: also from a run that is alive.

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
    """Moves partitions, all of them or none. ``number``: of the commit in its run, from 1.

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
    """A sign of life; ``lease_ms`` 0: the run has ended.

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
    """Puts offsets elsewhere; partitions at -1, or not named, stay. No run is in charge then.

    Raises:
        RequestFailed: NON_EMPTY_GROUP if a run is alive, RESOURCE_NOT_FOUND,
            INVALID_UPDATE_VERSION if it is not at ``expected_version``.
    """
    request = admin_pb2.AlterPipelineRequest(
        name=name,
        reset=admin_pb2.ResetPipeline(
            topics=[one.to_proto() for one in topics], expected_version=expected_version
        ),
    )
    return (yield from _altered(request, "resetting a pipeline"))


def delete(name: str) -> Steps[None]:
    """Forgets how far a pipeline is. What it has written stays.

    Raises:
        RequestFailed: NON_EMPTY_GROUP if a run is alive, RESOURCE_NOT_FOUND.
    """
    request = admin_pb2.AlterPipelineRequest(name=name, delete=admin_pb2.DeletePipeline())
    yield from _altered(request, "deleting a pipeline")


def describe(names: Sequence[str] = ()) -> Steps[list[Pipeline]]:
    """Those that exist of the ones named; of none named: all that one may see. Sorted by name.

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
