"""Records of the progress of pipelines."""

from typing import ClassVar

from quorate.common.types import Int64, TopicId
from quorate.metadata_log.records.value import MetadataValue


class PipelineTopicOffsets(MetadataValue, frozen=True, gc=False, kw_only=True):
    """The progress of a pipeline in one topic."""

    topic: str
    topic_id: TopicId  # Offsets of another topic of the same name mean nothing.
    offsets: tuple[Int64, ...]  # By partition, the first offset that is not done; -1 if not begun.


class PipelineRun(MetadataValue, frozen=True, gc=False, kw_only=True):
    """The newest run of a pipeline, under way or ended, and its newest commit, which may be of an
    earlier run.
    """

    owner: str = ""  # Names for people who runs it, and where.
    started_ms: Int64 = 0  # The controller's wall clock, ms since the epoch, as all times here.
    lease_until_ms: Int64 = 0  # The run is alive until then, unless it renews; 0 if it has ended.
    commit_epoch: Int64 = 0  # The run that made the newest commit; 0 if there is none.
    commit: Int64 = 0  # The number of the commit within that run, from 1.
    committed_ms: Int64 = 0  # The time of the commit.
    rows: Int64 = 0  # Rows written by all runs, up to that commit.


class PipelineSet(MetadataValue, frozen=True, gc=False, kw_only=True, tag=38):
    """/pipelines/NAME: replaces the progress of a pipeline and the run that moves it."""

    BEGIN: ClassVar[int] = 0

    name: str
    expected_version: Int64  # Compare-and-set: the version that it replaces; 0 if there is none.
    run_epoch: Int64  # The writing run; BEGIN starts a run whose epoch is this record's offset.
    sink: str  # The place to which the rows are written.
    topics: tuple[PipelineTopicOffsets, ...]
    run: PipelineRun
    rewound: bool = False  # The sink may hold rows at and above the offsets, to be removed first.


class PipelineRemoved(MetadataValue, frozen=True, gc=False, kw_only=True, tag=39):
    """Removes the progress of a pipeline."""

    name: str
    expected_version: Int64  # Compare-and-set: the version it had.
