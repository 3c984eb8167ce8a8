"""Rules of pipelines: progress moves by compare-and-set, and only by the run in charge."""

import re
from collections import Counter
from typing import Final

from quorate.common.types import MetadataOffset
from quorate.metadata_log.draft import Draft, require_id
from quorate.metadata_log.image import PipelineState
from quorate.metadata_log.records import OperationRefused, PipelineRemoved, PipelineSet, ResultCode

NAME_PATTERN: Final = r"[A-Za-z0-9._-]{1,200}"
"""The pattern of topic names as well: the name is part of paths, here and in the sink."""

NOT_BEGUN: Final = -1


def is_pipeline_name(name: str) -> bool:
    return re.fullmatch(NAME_PATTERN, name) is not None and name not in (".", "..")


def pipeline_set(draft: Draft, offset: MetadataOffset, record: PipelineSet) -> int:
    """Write the progress. Once a new run begins, nothing from earlier runs is accepted any more."""
    if not is_pipeline_name(record.name):
        raise OperationRefused(ResultCode.INVALID, f"{record.name!r} is no name of a pipeline")
    _require_version(draft, record)
    _require_offsets(record)
    before = draft.pipelines.get(record.name)
    run_epoch = record.run_epoch
    if run_epoch == PipelineSet.BEGIN:
        run_epoch = offset
    elif before is None or before.run_epoch != run_epoch:
        raise OperationRefused(
            ResultCode.CONDITION_FAILED,
            f"run {run_epoch} is no longer in charge of pipeline {record.name}",
        )
    draft.pipelines.put(
        record.name,
        PipelineState(run_epoch, record.sink, record.topics, record.run, record.rewound, offset),
    )
    return offset


def pipeline_removed(draft: Draft, offset: MetadataOffset, record: PipelineRemoved) -> int:
    _require_version(draft, record)
    draft.pipelines.remove(record.name)
    return offset


def _require_version(draft: Draft, record: PipelineSet | PipelineRemoved) -> None:
    before = draft.pipelines.get(record.name)
    found = 0 if before is None else before.version
    if found != record.expected_version:
        raise OperationRefused(
            ResultCode.VERSION_CONFLICT,
            f"pipeline {record.name} is at version {found}, not {record.expected_version}",
        )
    if before is None and isinstance(record, PipelineRemoved):
        raise OperationRefused(ResultCode.INVALID, f"there is no pipeline {record.name!r}")


def _require_offsets(record: PipelineSet) -> None:
    for topic, times in Counter(one.topic for one in record.topics).items():
        if times > 1:
            raise OperationRefused(ResultCode.INVALID, f"topic {topic} is named {times} times")
    for one in record.topics:
        require_id(f"the id of topic {one.topic}", one.topic_id)
        if any(offset < NOT_BEGUN for offset in one.offsets):
            raise OperationRefused(
                ResultCode.INVALID, f"an offset of topic {one.topic} is below -1"
            )
