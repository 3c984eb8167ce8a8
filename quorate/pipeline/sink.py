"""The sink: how rows get into a folder of Parquet files so that each offset is there once.

The metadata log says how far a pipeline is; no file system commits together with it. So a batch
goes through four steps, and whoever begins a run clears up after those who got stuck in one:

1. its rows are *staged* where no reader looks;
2. its *intent* is written: the names that it is about to put in place;
3. the run makes sure that it is still in charge, then moves the files to these names;
4. the offsets are *committed*, in one conditional transaction; then the intent is removed.

**Killed** anywhere, a batch leaves an intent that the log knows to be committed (its files stay),
or not to be (they go), or no intent (then nothing was in place). **Out of charge** without knowing
it, a run that slept can at most finish a move it was in: every name it may move to stands in an
intent written before it looked whether it was in charge, so before the next run began, so the next
run sees it. Such intents are kept, and looked after again at every beginning: what has slipped in
late goes then. Staged files of others are removed, so that there is nothing left to move.

What is asked of the file system: a file is there as a whole or not at all once it is moved, and
what was written is seen by whoever lists afterwards. A move need not be atomic, nor quick (S3).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from quorate.pipeline import layout
from quorate.pipeline.layout import BatchId, DataFile
from quorate.spark.ranges import OffsetRange, TopicPartition

ABORTED_KEPT_MS: Final = 7 * 24 * 3_600_000
"""For so long a run that was taken over may turn up again."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file below the sink's folder; ``path`` is relative to it."""

    path: str
    modified_ms: int


class Files(Protocol):
    """A folder in some file system. All raise ``SinkError``; paths are relative to the folder."""

    def below(self, path: str) -> Iterator[FoundFile]:
        """All files at any depth; none if there is no such folder."""

    def read_text(self, path: str) -> str: ...

    def write_text(self, path: str, text: str) -> None: ...

    def move(self, source: str, target: str) -> None:
        """Raises ``SinkError`` too if the source is gone; makes the target's folder."""

    def delete(self, path: str) -> None:
        """With all below; nothing if it is gone."""

    def rows(self, path: str) -> int:
        """Of a Parquet file, as its footer says."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A batch whose rows are written: where they lie, where they go, and how many there are."""

    batch: BatchId
    names: Mapping[str, str]
    rows: int


class Sink:
    """The folder of one pipeline."""

    def __init__(self, pipeline: str, files: Files) -> None:
        self._pipeline = pipeline
        self._files = files

    # -- a batch ---------------------------------------------------------------------------------

    def staging_path(self, batch: BatchId) -> str:
        return layout.staging_path(self._pipeline, batch)

    def staged(self, batch: BatchId, ranges: Iterable[OffsetRange]) -> Staged:
        """What the batch has written."""
        folder = self.staging_path(batch)
        found = [one.path.removeprefix(f"{folder}/") for one in self._files.below(folder)]
        names = layout.final_names(
            self._pipeline, batch, ranges, [one for one in found if layout.is_rows(one)]
        )
        rows = sum(self._files.rows(f"{folder}/{one}") for one in names)
        return Staged(batch, {f"{folder}/{one}": name for one, name in names.items()}, rows)

    def publish(self, staged: Staged, make_sure: Callable[[], None]) -> None:
        """Steps 2 and 3; ``make_sure`` raises if the run is no longer in charge."""
        if not staged.names:
            return
        path = layout.intent_path(self._pipeline, staged.batch)
        self._files.write_text(path, layout.intent_text(staged.batch, staged.names.values()))
        make_sure()
        for source, target in staged.names.items():
            self._files.move(source, target)

    def forget(self, batch: BatchId) -> None:
        """The batch is committed."""
        self._files.delete(layout.intent_path(self._pipeline, batch))
        self._files.delete(self.staging_path(batch))

    def abandon(self, staged: Staged | None, batch: BatchId) -> None:
        """The batch will not be committed; its intent stays, for what may slip in late."""
        self._files.delete(self.staging_path(batch))
        for target in staged.names.values() if staged else ():
            self._files.delete(target)

    # -- the beginning of a run ------------------------------------------------------------------

    def recover(self, committed: BatchId, now_ms: int) -> None:
        """Clear up after runs before; ``committed``: the newest batch that was committed.

        Of earlier runs than that one's all intents are of batches that never were committed: a
        run removes the one intent that may have been left behind before it commits anything.
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

    def own_files(self) -> list[DataFile]:
        """All rows of this pipeline that readers see."""
        found = (layout.data_file(self._pipeline, one.path) for one in self._files.below(""))
        own = f"{layout.OWN_FOLDER}/"
        return [one for one in found if one is not None and not one.path.startswith(own)]

    def cut(self, doomed: Iterable[DataFile]) -> None:
        for one in doomed:
            self._files.delete(one.path)


def lowered(
    offsets: Mapping[TopicPartition, int], present: Iterable[DataFile]
) -> dict[TopicPartition, int]:
    """Where a pipeline that was set back can begin: no file is cut in two, so at the start of the
    one that an offset lies in.
    """
    at = dict(offsets)
    for one in sorted(present, key=lambda file: -file.start):
        offset = at.get(one.topic_partition)
        if offset is not None and one.start < offset < one.end:
            at[one.topic_partition] = one.start
    return at


def beyond(offsets: Mapping[TopicPartition, int], present: Sequence[DataFile]) -> list[DataFile]:
    """Files with rows at or above the offsets; of partitions that have none: all."""
    return [one for one in present if one.end > offsets.get(one.topic_partition, 0)]
