"""Pipelines in the metadata log: moved by compare-and-set, and by the run in charge alone."""

import msgspec
import pytest

from quorate.metadata_log.image import METADATA_VERSION
from quorate.metadata_log.paths import pipeline_path, version_at
from quorate.metadata_log.records import (
    PipelineRemoved,
    PipelineRun,
    PipelineSet,
    PipelineTopicOffsets,
    QuorumVoterSet,
    ResultCode,
)
from tests.support.metadata import MetadataLogBuilder, quorum_voter, topic_id_of

TOPIC = PipelineTopicOffsets(topic="t", topic_id=topic_id_of("t"), offsets=(5, -1))
BEGUN = PipelineSet(
    name="lake",
    expected_version=0,
    run_epoch=PipelineSet.BEGIN,
    sink="/lake",
    topics=(TOPIC,),
    run=PipelineRun(owner="h:1"),
)


@pytest.fixture
def log() -> MetadataLogBuilder:
    log = MetadataLogBuilder()
    log.start_broker(1)
    log.elect_controller(1)
    return log


def changed(**fields: object) -> PipelineSet:
    return msgspec.structs.replace(BEGUN, **fields)


def code_of(log: MetadataLogBuilder, record: PipelineSet | PipelineRemoved) -> ResultCode:
    (result,) = log.write_as_controller(record).results
    return result.code


def test_a_run_begins_moves_and_is_forgotten(log: MetadataLogBuilder) -> None:
    epoch = log.write_as_controller(BEGUN).offset
    pipeline = log.image.pipelines["lake"]
    assert (pipeline.run_epoch, pipeline.version, pipeline.topics) == (epoch, epoch, (TOPIC,))
    moved = msgspec.structs.replace(TOPIC, offsets=(9, 0))
    assert log.write_as_controller(
        changed(expected_version=epoch, run_epoch=epoch, topics=(moved,))
    ).ok
    pipeline = log.image.pipelines["lake"]
    assert (pipeline.run_epoch, pipeline.topics) == (epoch, (moved,))
    assert version_at(log.image, pipeline_path("lake")) == pipeline.version > epoch
    assert log.write_as_controller(
        PipelineRemoved(name="lake", expected_version=pipeline.version)
    ).ok
    assert version_at(log.image, pipeline_path("lake")) is None


def test_only_the_run_in_charge_writes(log: MetadataLogBuilder) -> None:
    first = log.write_as_controller(BEGUN).offset
    second = log.write_as_controller(changed(expected_version=first)).offset
    late = changed(expected_version=second, run_epoch=first)
    assert code_of(log, late) is ResultCode.CONDITION_FAILED
    assert log.image.pipelines["lake"].run_epoch == second


def test_a_run_of_a_pipeline_that_was_forgotten_is_not_in_charge_of_its_namesake(
    log: MetadataLogBuilder,
) -> None:
    first = log.write_as_controller(BEGUN).offset
    log.write_as_controller(PipelineRemoved(name="lake", expected_version=first))
    assert code_of(log, changed(run_epoch=first)) is ResultCode.CONDITION_FAILED
    second = log.write_as_controller(BEGUN).offset
    late = changed(expected_version=second, run_epoch=first)
    assert code_of(log, late) is ResultCode.CONDITION_FAILED


@pytest.mark.parametrize("version", [0, 1, 1 << 40])
def test_a_write_at_another_version_is_refused(log: MetadataLogBuilder, version: int) -> None:
    log.write_as_controller(BEGUN)
    assert code_of(log, changed(expected_version=version)) is ResultCode.VERSION_CONFLICT
    removed = PipelineRemoved(name="lake", expected_version=version)
    assert code_of(log, removed) is ResultCode.VERSION_CONFLICT
    assert "lake" in log.image.pipelines


def test_what_never_was_cannot_be_forgotten(log: MetadataLogBuilder) -> None:
    assert code_of(log, PipelineRemoved(name="lake", expected_version=0)) is ResultCode.INVALID


@pytest.mark.parametrize(
    "record",
    [
        *(changed(name=name) for name in ("", "a/b", "..", "a b", "a" * 201)),
        changed(topics=(TOPIC, TOPIC)),
        changed(topics=(msgspec.structs.replace(TOPIC, offsets=(-2,)),)),
        changed(topics=(msgspec.structs.replace(TOPIC, topic_id=b"short"),)),
    ],
)
def test_a_malformed_pipeline_is_refused(log: MetadataLogBuilder, record: PipelineSet) -> None:
    assert code_of(log, record) is ResultCode.INVALID
    assert not log.image.pipelines


def test_f3_only_the_controller_writes_pipelines(log: MetadataLogBuilder) -> None:
    for record in (BEGUN, PipelineRemoved(name="lake", expected_version=0)):
        (result,) = log.write(record).results
        assert "is the controller's to write" in result.detail


def test_b4_pipelines_wait_for_their_metadata_version() -> None:
    log = MetadataLogBuilder(begun=False)
    voters = QuorumVoterSet(expected_version=0, voters=(quorum_voter(1),), metadata_version=3)
    assert log.write(voters).ok
    log.start_broker(1)
    log.elect_controller(1)
    assert log.image.features[METADATA_VERSION] == 3
    for record in (BEGUN, PipelineRemoved(name="lake", expected_version=0)):
        (result,) = log.write_as_controller(record).results
        assert "needs metadata_version 4, and 3 is in force" in result.detail
