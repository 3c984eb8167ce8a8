"""The sink: how rows get into a folder of Parquet files so that each offset is there exactly once.

The metadata log keeps the offsets of a pipeline, and no file system can commit together with it.
So a batch goes through four steps, and every run begins by cleaning up after runs that stopped in
one of them:

1. The rows are *staged* where no reader looks.
2. An *intent* is written: the names that the batch is about to put in place.
3. The run makes sure that it is still in charge, then moves the files to these names.
4. The offsets are *committed*, in one conditional transaction. Then the intent is removed.

**A run that is killed** leaves one of three things: an intent of a batch that the log knows as
committed (its files stay), an intent of one that is not committed (its files are removed), or no
intent (then no file was in place).

**A run that is out of charge without knowing it**, because it slept, can at most finish a move that
it had begun. Every name that it may move to is in an intent that was written before it checked that
it was in charge, so before the next run began; so the next run sees the intent. Such intents are
kept, and every later run removes their files again, because one may have been moved late. Staged
files of other runs are removed, so that nothing is left to move.

The file system has to guarantee two things: a moved file is there as a whole or not at all, and a
written file is seen by every later listing. A move need not be atomic or fast (S3).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from quorate.common.topic_partition import TopicPartition
from quorate.pipeline import sink_layout as layout
from quorate.pipeline.folder_columns import columns_of_mark, folder_columns, mark_of
from quorate.pipeline.pipeline_errors import SinkError
from quorate.pipeline.pipeline_registry import ActiveRun
from quorate.pipeline.sink_files import HadoopFiles
from quorate.pipeline.sink_layout import BatchId, DataFile
from quorate.spark.offset_ranges import OffsetRange

ABORTED_KEPT_MS: Final = 7 * 24 * 3_600_000
"""The time for which the intents of aborted batches are kept, in ms. A run that was taken over may
wake up again within it."""


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """A batch whose rows are written to the staging folder."""

    batch: BatchId
    names: Mapping[str, str]
    """The final path of each file, by its staged path."""
    rows: int


class Sink:
    """The folder into which one pipeline writes."""

    def __init__(
        self, pipeline: str, files: HadoopFiles, columns: Sequence[str] = folder_columns(())
    ) -> None:
        """``columns`` name the folders, from the outermost to the innermost."""
        self._pipeline = pipeline
        self._files = files
        self._columns = tuple(columns)

    # -- a batch ---------------------------------------------------------------------------------

    def staging_path(self, batch: BatchId) -> str:
        """Return the folder for the staged files of a batch."""
        return layout.staging_path(self._pipeline, batch)

    def staged(self, batch: BatchId, ranges: Iterable[OffsetRange]) -> StagedBatch:
        """Return the files that the batch has written to its staging folder."""
        folder = self.staging_path(batch)
        found = [one.path.removeprefix(f"{folder}/") for one in self._files.below(folder)]
        names = layout.final_names(
            self._pipeline, batch, ranges, [one for one in found if layout.is_rows(one)]
        )
        rows = sum(self._files.rows(f"{folder}/{one}") for one in names)
        return StagedBatch(batch, {f"{folder}/{one}": name for one, name in names.items()}, rows)

    def publish(self, staged: StagedBatch, charge: ActiveRun) -> None:
        """Write the intent, check that the run is in charge, and move the files (steps 2 and 3).

        Raises:
            RunFenced: the run is no longer in charge. No file was moved.
        """
        if not staged.names:
            return
        path = layout.intent_path(self._pipeline, staged.batch)
        self._files.write_text(path, layout.intent_text(staged.batch, staged.names.values()))
        charge.require_in_charge()
        for source, target in staged.names.items():
            self._files.move(source, target)

    def forget(self, batch: BatchId) -> None:
        """Remove the intent of a batch that is committed."""
        self._files.delete(layout.intent_path(self._pipeline, batch))
        self._files.delete(self.staging_path(batch))

    def abandon(self, staged: StagedBatch | None, batch: BatchId) -> None:
        """Remove the files of a batch that will not be committed.

        Its intent stays, because a file may still be moved late.
        """
        self._files.delete(self.staging_path(batch))
        for target in staged.names.values() if staged else ():
            self._files.delete(target)

    # -- the beginning of a run ------------------------------------------------------------------

    def recover(self, committed: BatchId, now_ms: int) -> None:
        """Clean up after earlier runs.

        All intents of runs before the one that committed last belong to batches that were never
        committed: a run removes the one intent of a committed batch that may have been left behind
        before it commits anything itself.

        Args:
            committed: the newest batch that was committed.
            now_ms: the wall clock.
        """
        for intent in list(self._files.below(layout.intents_folder(self._pipeline))):
            batch = layout.batch_of_intent(intent.path)
            if batch is None:
                continue
            if batch.run_epoch == committed.run_epoch and batch.commit <= committed.commit:
                self._files.delete(intent.path)
                continue
            for name in layout.files_of_intent(intent.path, self._files.read_text(intent.path)):
                self._files.delete(name)
            if intent.modified_ms < now_ms - ABORTED_KEPT_MS:
                self._files.delete(intent.path)
        self._files.delete(layout.staging_folder(self._pipeline))

    def begin_layout(self) -> None:
        """Note by which columns folders are named. There is no file of the pipeline yet."""
        folder = layout.layout_folder(self._pipeline)
        self._files.delete(folder)
        self._files.write_text(f"{folder}/{mark_of(self._columns)}", "")

    def require_layout(self) -> None:
        """Check that the folders of earlier runs are named by the same columns.

        A sink without a note is of a release that named the innermost folder by the date.

        Raises:
            SinkError: they are named by others, and no reader takes both.
        """
        folder = layout.layout_folder(self._pipeline)
        names = [one.path.removeprefix(f"{folder}/") for one in self._files.below(folder)]
        found = set(filter(None, map(columns_of_mark, names))) or {folder_columns(())}
        if found != {self._columns}:
            known = " and ".join(", ".join(one) for one in sorted(found))
            raise SinkError(
                f"sink.partition.by names folders by {', '.join(self._columns)}, and the files "
                f"that are there lie by {known}: leave it as it was, or give the pipeline another "
                "name and sink.path"
            )

    def own_files(self) -> list[DataFile]:
        """Return all data files of this pipeline that readers see."""
        found = (layout.data_file(self._pipeline, one.path) for one in self._files.below(""))
        own = f"{layout.OWN_FOLDER}/"
        return [one for one in found if one is not None and not one.path.startswith(own)]

    def delete_files(self, files: Iterable[DataFile]) -> None:
        """Delete data files."""
        for one in files:
            self._files.delete(one.path)


def lowered_to_file_starts(
    offsets: Mapping[TopicPartition, int], present: Iterable[DataFile]
) -> dict[TopicPartition, int]:
    """Return the offsets at which a pipeline that was reset can begin.

    No file is cut in two. An offset inside a file is lowered to the start of that file.
    """
    at = dict(offsets)
    for one in sorted(present, key=lambda file: -file.start):
        offset = at.get(one.topic_partition)
        if offset is not None and one.start < offset < one.end:
            at[one.topic_partition] = one.start
    return at


def files_beyond(
    offsets: Mapping[TopicPartition, int], present: Sequence[DataFile]
) -> list[DataFile]:
    """Return the files with rows at or above the offsets.

    Of a partition without an offset, all files are returned.
    """
    return [one for one in present if one.end > offsets.get(one.topic_partition, 0)]
