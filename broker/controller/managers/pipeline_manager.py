"""Decides steps of pipelines: runs begin, commit and end, and operators reset them, all by
compare-and-set.

A run owns the pipeline from its beginning until another run begins or the pipeline is reset. Its
epoch is in every record it writes, and ``apply`` refuses the epoch of any other run. The lease of a
run only shows people that the run is *alive* and keeps others from beginning by accident; safety
does not depend on it. A retry after a lost answer finds its work done.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from quorate.broker.common.errors import KafkaError
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.common.types import MetadataOffset, TopicId
from quorate.metadata_log.codec import decode_pipeline_topic
from quorate.metadata_log.features import PIPELINES
from quorate.metadata_log.image import METADATA_VERSION, Image, PipelineState
from quorate.metadata_log.records import (
    Operation,
    PipelineRemoved,
    PipelineRun,
    PipelineSet,
    PipelineTopicOffsets,
    Record,
)
from quorate.metadata_log.rules.pipelines import NAME_PATTERN, NOT_BEGUN, is_pipeline_name
from quorate_proto.v1 import admin_pb2, errors_pb2


class PipelineDecision(NamedTuple):
    """The decision about one step of a pipeline.

    ``operation`` is None if nothing has to be written. ``pipeline`` is None if it is deleted. The
    pipeline's version, and the epoch of a run that begins, are those in the operation's result.
    """

    pipeline: PipelineState | None
    operation: Operation | None


def alter(
    image: Image, request: admin_pb2.AlterPipelineRequest, *, tenure: ControllerTenure, now_ms: int
) -> PipelineDecision:
    """Decide the step that the request asks for.

    Raises:
        KafkaError: FENCED_MEMBER_EPOCH, NON_EMPTY_GROUP, RESOURCE_NOT_FOUND, INVALID_REQUEST,
            INVALID_UPDATE_VERSION, UNSUPPORTED_VERSION.
    """
    _check_level(image)
    if not is_pipeline_name(request.name):
        raise KafkaError(
            errors_pb2.INVALID_REQUEST,
            f"{request.name!r} is no name of a pipeline: it must match {NAME_PATTERN}",
        )
    change = _Change(tenure, request.name, image.pipelines.get(request.name), now_ms)
    match request.WhichOneof("action"):
        case "begin":
            return _begin(change, request.begin)
        case "commit":
            return _commit(change, request.commit)
        case "renew":
            return _renew(change, request.renew)
        case "reset":
            return _reset(change, request.reset)
        case "delete":
            return _delete(change)
    raise KafkaError(
        errors_pb2.INVALID_REQUEST, f"nothing this version knows is asked of {request.name}"
    )


def is_alive(pipeline: PipelineState, now_ms: int) -> bool:
    """Return whether a run has renewed its lease recently."""
    return pipeline.run.lease_until_ms > now_ms


def _check_level(image: Image) -> None:
    level = image.metadata_version
    if level < PIPELINES:
        raise KafkaError(
            errors_pb2.UNSUPPORTED_VERSION,
            f"pipelines need {METADATA_VERSION} {PIPELINES}, and {level} is in force: "
            f"quorate features upgrade --feature {METADATA_VERSION} --level {PIPELINES}",
        )


class _Change(NamedTuple):
    """The current state of one pipeline, and the tenure in which it is changed."""

    tenure: ControllerTenure
    name: str
    before: PipelineState | None
    now_ms: int

    def known(self) -> PipelineState:
        if self.before is None:
            raise KafkaError(errors_pb2.RESOURCE_NOT_FOUND, f"there is no pipeline {self.name!r}")
        return self.before

    def of_run(self, run_epoch: int) -> PipelineState:
        """Return the pipeline, if that run owns it."""
        before = self.known()
        if before.run_epoch != run_epoch:
            raise KafkaError(
                errors_pb2.FENCED_MEMBER_EPOCH,
                f"run {run_epoch} is no longer in charge of pipeline {self.name}: run "
                f"{before.run_epoch} is ({before.run.owner or 'set back by hand'})",
            )
        return before

    def refuse_alive(self, before: PipelineState, advice: str) -> None:
        if is_alive(before, self.now_ms):
            left_s = (before.run.lease_until_ms - self.now_ms) / 1000
            raise KafkaError(
                errors_pb2.NON_EMPTY_GROUP,
                f"a run of pipeline {self.name} is alive ({before.run.owner}; if it is not, that "
                f"is known in {left_s:.0f} s): {advice}",
            )

    def unchanged(self) -> PipelineDecision:
        return PipelineDecision(self.before, None)

    def written(self, after: PipelineState, *, begins: bool = False) -> PipelineDecision:
        record = PipelineSet(
            name=self.name,
            expected_version=0 if self.before is None else self.before.version,
            run_epoch=PipelineSet.BEGIN if begins else after.run_epoch,
            sink=after.sink,
            topics=after.topics,
            run=after.run,
            rewound=after.rewound,
        )
        return PipelineDecision(after, self.operation(record))

    def operation(self, record: Record) -> Operation:
        return self.tenure.operation(record)


# --- what a run asks for ------------------------------------------------------------------------


def _begin(change: _Change, asked: admin_pb2.BeginPipelineRun) -> PipelineDecision:
    before = change.before
    if before is not None:
        # A retry of the same owner finds its own first attempt alive.
        if not asked.take_over and before.run.owner != asked.owner:
            change.refuse_alive(before, "wait for it, or stop it")
        _check_sink(change.name, before, asked.sink)
    run = PipelineRun() if before is None else before.run
    begun = msgspec.structs.replace(
        run,
        owner=asked.owner,
        started_ms=change.now_ms,
        lease_until_ms=change.now_ms + asked.lease_ms,
    )
    after = PipelineState(
        PipelineSet.BEGIN,
        asked.sink,
        () if before is None else before.topics,
        begun,
        before is not None and before.rewound,
        MetadataOffset(0),
    )
    return change.written(after, begins=True)


def _check_sink(name: str, before: PipelineState, sink: str) -> None:
    """Refuse another sink for a pipeline that has begun.

    Its rows would be in two places: some in one sink, the rest in the other.
    """
    has_begun = any(offset != NOT_BEGUN for one in before.topics for offset in one.offsets)
    if has_begun and not before.rewound and before.sink != sink:
        raise KafkaError(
            errors_pb2.INVALID_REQUEST,
            f"pipeline {name} writes to {before.sink}, not to {sink}: keep its path, reset it "
            "(quorate pipeline reset), or give the new one another name",
        )


def _commit(change: _Change, asked: admin_pb2.CommitPipeline) -> PipelineDecision:
    before = change.of_run(asked.run_epoch)
    done = before.run.commit if before.run.commit_epoch == asked.run_epoch else 0
    if asked.commit == done and _is_done(before, asked.steps):
        return change.unchanged()
    if asked.commit != done + 1:
        raise KafkaError(
            errors_pb2.INVALID_REQUEST,
            f"commit {asked.commit} of pipeline {change.name} does not follow commit {done}",
        )
    run = msgspec.structs.replace(
        before.run,
        lease_until_ms=_lease(change, asked.lease_ms),
        commit_epoch=asked.run_epoch,
        commit=asked.commit,
        committed_ms=change.now_ms,
        rows=before.run.rows + asked.rows,
    )
    topics = _stepped(change.name, before.topics, asked.steps)
    after = msgspec.structs.replace(before, topics=topics, run=run, rewound=asked.rewound)
    return change.written(after)


def _is_done(before: PipelineState, steps: Iterable[admin_pb2.PipelineStep]) -> bool:
    recorded = {one.topic: one for one in before.topics}
    return all(
        step.topic in recorded and _offset(recorded[step.topic], step.partition) == step.to
        for step in steps
    )


def _stepped(
    name: str, topics: tuple[PipelineTopicOffsets, ...], steps: Iterable[admin_pb2.PipelineStep]
) -> tuple[PipelineTopicOffsets, ...]:
    """Apply all steps, each from the start offset that it names."""
    after = {one.topic: one for one in topics}
    for step in steps:
        topic_id = TopicId(step.topic_id)
        found = after.get(step.topic)
        if found is not None and found.topic_id != topic_id:
            raise KafkaError(
                errors_pb2.INCONSISTENT_TOPIC_ID,
                f"topic {step.topic} has been created anew since pipeline {name} read it: its "
                "offsets begin anew, too; reset the pipeline",
            )
        if found is None:
            found = PipelineTopicOffsets(topic=step.topic, topic_id=topic_id, offsets=())
        at = _offset(found, step.partition)
        if at != getattr(step, "from") or step.to < 0 or step.partition < 0:
            raise KafkaError(
                errors_pb2.INVALID_REQUEST,
                f"pipeline {name} is at {at} of {step.topic}-{step.partition}: a step from "
                f"{getattr(step, 'from')} to {step.to} cannot be taken",
            )
        after[step.topic] = _with_offsets(found, {step.partition: step.to})
    return tuple(after[topic] for topic in sorted(after))


def _renew(change: _Change, asked: admin_pb2.RenewPipelineRun) -> PipelineDecision:
    before = change.of_run(asked.run_epoch)
    run = msgspec.structs.replace(before.run, lease_until_ms=_lease(change, asked.lease_ms))
    return change.written(msgspec.structs.replace(before, run=run))


def _lease(change: _Change, lease_ms: int) -> int:
    return change.now_ms + lease_ms if lease_ms > 0 else 0


# --- what an operator asks for ------------------------------------------------------------------


def _reset(change: _Change, asked: admin_pb2.ResetPipeline) -> PipelineDecision:
    """Reset the pipeline. No run owns it afterwards, and the next run clears the sink first."""
    before = change.known()
    change.refuse_alive(before, "stop it before you reset the pipeline")
    if asked.expected_version not in (0, before.version):
        raise KafkaError(
            errors_pb2.INVALID_UPDATE_VERSION,
            f"pipeline {change.name} has moved since it was looked at: it is at version "
            f"{before.version}, not {asked.expected_version}; look again",
        )
    after = {one.topic: one for one in before.topics}
    for wanted in map(decode_pipeline_topic, asked.topics):
        if any(offset < NOT_BEGUN for offset in wanted.offsets):
            raise KafkaError(
                errors_pb2.INVALID_REQUEST, f"an offset of topic {wanted.topic} is below 0"
            )
        found = after.get(wanted.topic)
        if found is None or found.topic_id != wanted.topic_id:
            found = msgspec.structs.replace(wanted, offsets=())
        named = {n: one for n, one in enumerate(wanted.offsets) if one != NOT_BEGUN}
        after[wanted.topic] = _with_offsets(found, named)
    run = msgspec.structs.replace(before.run, owner="", lease_until_ms=0)
    topics = tuple(after[topic] for topic in sorted(after))
    rewound = msgspec.structs.replace(before, topics=topics, run=run, rewound=True)
    return change.written(rewound, begins=True)


def _delete(change: _Change) -> PipelineDecision:
    before = change.known()
    change.refuse_alive(before, "stop it before you delete the pipeline")
    removed = PipelineRemoved(name=change.name, expected_version=before.version)
    return PipelineDecision(None, change.operation(removed))


def _offset(topic: PipelineTopicOffsets, partition: int) -> int:
    is_known = 0 <= partition < len(topic.offsets)
    return topic.offsets[partition] if is_known else NOT_BEGUN


def _with_offsets(topic: PipelineTopicOffsets, changed: Mapping[int, int]) -> PipelineTopicOffsets:
    count = max([len(topic.offsets), *(partition + 1 for partition in changed)])
    offsets = [changed.get(n, _offset(topic, n)) for n in range(count)]
    return msgspec.structs.replace(topic, offsets=tuple(offsets))
