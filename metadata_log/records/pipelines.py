"""Records of how far pipelines are."""

from typing import ClassVar

from metadata_log.records.value import Value
from metadata_log.types import (
    Int64,
    TopicId,
)


class PipelineTopic(Value, frozen=True, gc=False, kw_only=True):
    """How far a pipeline is in one topic."""

    topic: str
    topic_id: TopicId  # Offsets of another topic of the same name mean nothing.
    offsets: tuple[Int64, ...]  # By partition: the first that is not done; -1: not begun.


class PipelineRun(Value, frozen=True, gc=False, kw_only=True):
    """The newest run of a pipeline, under way or over; and the newest commit, perhaps another's."""

    owner: str = ""  # For people: who runs it, where.
    started_ms: Int64 = 0  # Wall clock of the controller, ms since the epoch, as the others.
    lease_until_ms: Int64 = 0  # It is alive until then, unless it says so again; 0: it has ended.
    commit_epoch: Int64 = 0  # The run that the newest commit is of; 0: there is none.
    commit: Int64 = 0  # Its number within that run, from 1.
    committed_ms: Int64 = 0  # When it was.
    rows: Int64 = 0  # Written by all runs, up to that commit.


class PipelineSet(Value, frozen=True, gc=False, kw_only=True, tag=38):
    """/pipelines/NAME: how far a pipeline is, and who moves it: all of it, in place of the last."""

    BEGIN: ClassVar[int] = 0

    name: str
    expected_version: Int64  # Compare-and-set: the version it replaces; 0: there is none.
    run_epoch: Int64  # The run that writes; BEGIN: a new one, whose epoch is this record's offset.
    sink: str  # Where the rows of the offsets done are.
    topics: tuple[PipelineTopic, ...]
    run: PipelineRun
    rewound: bool = False  # The sink may hold rows at and above the offsets: they are to go first.


class PipelineRemoved(Value, frozen=True, gc=False, kw_only=True, tag=39):
    """How far the pipeline was is forgotten."""

    name: str
    expected_version: Int64  # Compare-and-set: the version it had.
