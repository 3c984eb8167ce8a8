"""Pipelines by the admin client: what is asked of whom, and what is made of the answer."""

from typing import Any, TypeVar

import pytest

from quorate.client.call_steps import Steps, ToAnyBroker, ToController
from quorate.client.calls import pipeline_calls as pipelines
from quorate.client.errors import RequestFailed
from quorate.client.results import PipelineStep, PipelineTopic
from quorate_proto.v1 import admin_pb2, errors_pb2, metadata_pb2

R = TypeVar("R")
TOPIC = PipelineTopic(topic="t", topic_id=b"i" * 16, offsets=(5, -1))
STATE = metadata_pb2.PipelineState(
    name="p",
    version=9,
    run_epoch=8,
    sink="/s",
    topics=[TOPIC.to_proto()],
    run=metadata_pb2.PipelineRun(
        owner="a", started_ms=1, lease_until_ms=2, commit_epoch=8, commit=3, committed_ms=4, rows=5
    ),
    rewound=True,
)


def question(steps: Steps[R], rpc: str) -> Any:  # noqa: ANN401 - any message
    asked = next(steps)
    assert isinstance(asked, ToController)
    assert asked.rpc == rpc == "AlterPipeline"
    return asked.request


def outcome(steps: Steps[R], answer: object) -> R:
    with pytest.raises(StopIteration) as ended:
        steps.send(answer)
    result: R = ended.value.value
    return result


def test_a_run_asks_the_controller_for_everything() -> None:
    begin = pipelines.begin_run("p", owner="a", lease_ms=7, sink="/s", take_over=True)
    assert question(begin, "AlterPipeline") == admin_pb2.AlterPipelineRequest(
        name="p", begin=admin_pb2.BeginPipelineRun(owner="a", lease_ms=7, sink="/s", take_over=True)
    )
    begun = outcome(begin, admin_pb2.AlterPipelineResponse(pipeline=STATE))
    assert (begun.name, begun.version, begun.run_epoch, begun.topics) == ("p", 9, 8, (TOPIC,))
    assert (begun.commit_epoch, begun.commit, begun.rows, begun.rewound) == (8, 3, 5, True)
    assert begun.topic("t") == TOPIC
    assert begun.topic("u") is None

    step = PipelineStep(topic="t", topic_id=b"i" * 16, partition=1, start=-1, end=4)
    committing = pipelines.commit(
        "p", run_epoch=8, number=4, steps=[step], rows=6, lease_ms=7, rewound=True
    )
    asked = question(committing, "AlterPipeline").commit
    assert (asked.run_epoch, asked.commit, asked.rows, asked.lease_ms) == (8, 4, 6, 7)
    assert asked.rewound
    (sent,) = asked.steps
    assert (sent.topic, sent.partition, getattr(sent, "from"), sent.to) == ("t", 1, -1, 4)
    renewing = pipelines.renew_run("p", run_epoch=8, lease_ms=7)
    assert question(renewing, "AlterPipeline").renew.lease_ms == 7
    resetting = pipelines.reset("p", [TOPIC], expected_version=9)
    asked_reset = question(resetting, "AlterPipeline").reset
    assert (list(asked_reset.topics), asked_reset.expected_version) == ([TOPIC.to_proto()], 9)
    deleting = pipelines.delete("p")
    assert question(deleting, "AlterPipeline").HasField("delete")
    assert outcome(deleting, admin_pb2.AlterPipelineResponse()) is None


def test_any_broker_tells_how_far_pipelines_are() -> None:
    describing = pipelines.describe(["p"])
    asked = next(describing)
    assert isinstance(asked, ToAnyBroker)
    found = admin_pb2.DescribedPipeline(pipeline=STATE, alive=True)
    (one,) = outcome(describing, admin_pb2.DescribePipelinesResponse(pipelines=[found]))
    assert (one.name, one.alive, one.owner) == ("p", True, "a")


def test_a_refusal_to_tell_is_raised() -> None:
    describing = pipelines.describe()
    next(describing)
    code = errors_pb2.GROUP_AUTHORIZATION_FAILED
    with pytest.raises(RequestFailed, match="GROUP_AUTHORIZATION_FAILED"):
        describing.send(admin_pb2.DescribePipelinesResponse(error_code=code, error_message="no"))
