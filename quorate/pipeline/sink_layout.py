"""The names in the sink. The path of a file says what the file holds.

    topic=orders/partition=3/date=2026-11-22/lake-0…0100-0…0200-57-2-00000.zstd.parquet
                                             |    |      |      |  | `- number in the batch
                                             |    |      |      |  `--- commit within the run
                                             |    |      |      `------ run that wrote it
                                             |    `------`------------- offsets [start, end)
                                             `------------------------- pipeline
    _quorate/lake/intents/57-2.json    the files that a batch is about to put in place
    _quorate/lake/staging/57-2/…       the files that a batch has written so far
    _quorate/lake/layout/columns=…     the columns that folders are named by

Readers of Parquet skip names that begin with an underscore. No two runs have the same epoch, so no
two batches ever have a name in common.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import unquote

from quorate.common.files.checked_json import (
    CHECKSUM,
    decode_checked_json,
    decode_json_object,
    encode_checked_json,
)
from quorate.common.topic_partition import TopicPartition
from quorate.pipeline.pipeline_errors import SinkError
from quorate.spark.offset_ranges import OffsetRange

OWN_FOLDER: Final = "_quorate"
INTENT_VERSION: Final = 2
_WITHOUT_CHECKSUM: Final = 1


@dataclass(frozen=True, slots=True, order=True)
class BatchId:
    """The id of a batch: the epoch of its run, and the number of its commit within the run."""

    run_epoch: int
    commit: int

    def __str__(self) -> str:
        return f"{self.run_epoch}-{self.commit}"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of rows, with the offsets that its batch read of one partition.

    The file need not hold rows of all these offsets.
    """

    path: str
    topic_partition: TopicPartition
    start: int
    end: int
    batch: BatchId


def intents_folder(pipeline: str) -> str:
    """Return the folder of all intents of a pipeline."""
    return f"{OWN_FOLDER}/{pipeline}/intents"


def staging_folder(pipeline: str) -> str:
    """Return the folder of everything that a pipeline has staged."""
    return f"{OWN_FOLDER}/{pipeline}/staging"


def layout_folder(pipeline: str) -> str:
    """Return the folder of the file that says by which columns folders are named."""
    return f"{OWN_FOLDER}/{pipeline}/layout"


def intent_path(pipeline: str, batch: BatchId) -> str:
    """Return the path of the intent of a batch."""
    return f"{intents_folder(pipeline)}/{batch}.json"


def staging_path(pipeline: str, batch: BatchId) -> str:
    """Return the folder into which a batch stages its files."""
    return f"{staging_folder(pipeline)}/{batch}"


def batch_of_intent(path: str) -> BatchId | None:
    """Return the batch that the intent belongs to, or None if the file is no intent."""
    found = re.fullmatch(r"(\d+)-(\d+)\.json", PurePosixPath(path).name)
    return None if found is None else BatchId(int(found[1]), int(found[2]))


def data_file(pipeline: str, path: str) -> DataFile | None:
    """Return what the file holds, or None if it is not a file of this pipeline."""
    name = re.fullmatch(
        re.escape(pipeline) + r"-(\d{20})-(\d{20})-(\d+)-(\d+)-\d{5,}\..*parquet",
        PurePosixPath(path).name,
    )
    partition = _partition_of(path)
    if name is None or partition is None:
        return None
    start, end, run_epoch, commit = map(int, name.groups())
    return DataFile(path, partition, start, end, BatchId(run_epoch, commit))


def is_rows(path: str) -> bool:
    """Return True if a staged file holds rows, and False if it is bookkeeping of Spark."""
    hidden = any(part.startswith(("_", ".")) for part in PurePosixPath(path).parts)
    return path.endswith(".parquet") and not hidden


def final_names(
    pipeline: str, batch: BatchId, ranges: Iterable[OffsetRange], staged: Sequence[str]
) -> dict[str, str]:
    """Return the final name of each staged file.

    The keys are paths within the staging folder, the values are paths within the sink.

    Raises:
        SinkError: a file claims rows of a partition that the batch has not read.
    """
    by_partition: Mapping[TopicPartition, OffsetRange] = {
        offsets.topic_partition: offsets for offsets in ranges
    }
    names: dict[str, str] = {}
    for number, path in enumerate(sorted(staged)):
        partition = _partition_of(path)
        offsets = None if partition is None else by_partition.get(partition)
        if offsets is None:
            raise SinkError(
                f"rows are of {partition or path}, which this batch has not read: the SQL must "
                "leave the columns topic and partition as they are"
            )
        folder, name = PurePosixPath(path).parent, PurePosixPath(path).name
        suffix = "".join(PurePosixPath(name).suffixes[-2:])
        edges = f"{offsets.start:020}-{offsets.end:020}"
        names[path] = f"{folder}/{pipeline}-{edges}-{batch}-{number:05}{suffix}"
    return names


def intent_text(batch: BatchId, files: Iterable[str]) -> str:
    """Return the content of an intent: the files that the batch is about to put in place."""
    content = {"version": INTENT_VERSION, "batch": str(batch), "files": sorted(files)}
    return encode_checked_json(content).decode()


def files_of_intent(path: str, text: str) -> list[str]:
    """Return the files that a batch was about to put in place.

    A truncated text means that the run was killed while it wrote the intent. It had put no file in
    place, so the result is empty.

    Raises:
        SinkError: a newer version wrote the intent, or it is damaged: then a name in it may be that
        of a file which must stay.
    """
    try:
        intent = _decoded_intent(text)
        if intent is None:
            return []
        version, files = intent["version"], [str(one) for one in intent["files"]]
    except (ValueError, KeyError, TypeError) as error:
        raise SinkError(
            f"{path} is damaged ({error}): restore it; or remove the files of its batch, which "
            "have the intent's name in theirs, from the folders of the topics, and then the intent"
        ) from error
    if version not in (_WITHOUT_CHECKSUM, INTENT_VERSION):
        raise SinkError(
            f"{path} has version {version}, and this Quorate knows {INTENT_VERSION}: run the "
            "pipeline with the Quorate that wrote it"
        )
    return files


def _decoded_intent(text: str) -> dict[str, Any] | None:
    """Return the content of an intent, or None if it is truncated.

    The checksum comes last, so a text that has not even begun with it was cut off.
    """
    try:
        unchecked = decode_json_object(text.encode())
    except ValueError:
        if re.search(rf'"{CHECKSUM}": "[0-9a-f]{{8}}".', text) or text.rstrip().endswith("}"):
            raise
        return None
    if unchecked["version"] == _WITHOUT_CHECKSUM and CHECKSUM not in unchecked:
        return unchecked
    if int(unchecked["version"]) > INTENT_VERSION:
        return unchecked
    return decode_checked_json(text.rstrip("\n").encode() + b"\n")


def _partition_of(path: str) -> TopicPartition | None:
    """Return the partition that the folders of a path in the sink or in staging name."""
    values = dict(part.split("=", 1) for part in PurePosixPath(path).parts[:-1] if "=" in part)
    topic, number = values.get("topic"), values.get("partition", "")
    if topic is None or not (number.isascii() and number.isdecimal()):
        return None
    return TopicPartition(unquote(topic), int(number))
