"""A cluster, a sink and runs of a pipeline, where every effect is a point to be killed at.

Files are in memory and hold their offsets as text: thousands of runs are over in seconds.
"""

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from quorate.broker.common.errors import KafkaError
from quorate.broker.controller.managers import pipeline_manager
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.client.admin import AdminClient
from quorate.client.call_steps import Steps
from quorate.client.calls import pipeline_calls as calls
from quorate.client.errors import RequestFailed
from quorate.client.results import Pipeline, PipelineStep, PipelineTopic
from quorate.common.topic_partition import TopicPartition
from quorate.common.types import BrokerId, ControllerEpoch
from quorate.metadata_log.codec import encode_pipeline
from quorate.pipeline.folder_columns import folder_columns
from quorate.pipeline.pipeline_errors import PipelineError, SinkError
from quorate.pipeline.pipeline_planner import PipelineBatch, PipelinePlanner
from quorate.pipeline.pipeline_registry import ActiveRun
from quorate.pipeline.pipeline_runner import PipelineRunner
from quorate.pipeline.run_progress import RunProgress
from quorate.pipeline.sink import Sink
from quorate.pipeline.sink_files import FoundFile, HadoopFiles
from quorate.pipeline.spark_rows import SparkRows
from quorate.spark.errors import DataLoss
from quorate.spark.offset_ranges import DescribedTopic, OffsetRange
from quorate.spark.options.topic_subscription import Subscription
from quorate.spark.streaming.log_view import LogEdges, LogView
from quorate.spark.streaming.micro_batch_planning import (
    begin_next_batch,
    next_offsets,
    plan_batch,
    waiting_offsets,
)
from quorate.spark.streaming.stream_checkpoint import StreamOffsets
from quorate_proto.v1 import admin_pb2
from tests.support.metadata import MetadataLogBuilder, topic_id_of

NAME = "lake"
LEASE_MS = 30_000
NOW_MS = 1_700_000_000_000
DAY = 7
"""Offsets per day."""

Tick = Callable[[str], None]
"""Told before and after what is seen from outside; may raise `Killed`."""


class Killed(BaseException):
    """kill -9."""


def never(_label: str) -> None:
    """Nobody kills."""


class KilledAt:
    """Kills at the n-th tick; whoever is dead does nothing any more."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.ticks = 0
        self.labels: list[str] = []

    def __call__(self, label: str) -> None:
        self.labels.append(label)
        self.ticks += 1
        if self.ticks > self.at:
            raise Killed(label)


class KilledWhen:
    """Kills at the first tick of that name."""

    def __init__(self, label: str, before: Callable[[], None] = lambda: None) -> None:
        self._label = label
        self._before = before
        self._is_dead = False

    def __call__(self, label: str) -> None:
        if label == self._label and not self._is_dead:
            self._before()
            self._is_dead = True
        if self._is_dead:
            raise Killed(label)


class PausedAt:
    """Sleeps at the n-th tick while something else is done, then goes on; or dies soon after."""

    def __init__(self, at: int, meanwhile: Callable[[], None], *, lives_for: int = 1 << 30) -> None:
        self.at = at
        self.ticks = 0
        self.label = ""
        self._meanwhile = meanwhile
        self._lives_for = lives_for

    def __call__(self, label: str) -> None:
        self.ticks += 1
        if self.ticks == self.at + 1:
            self.label = label
            self._meanwhile()
        if self.ticks > self.at + self._lives_for:
            raise Killed(label)


class Log:
    """The topic ``t``: its partitions hold ``first <= offset < end``."""

    def __init__(self, *ends: int) -> None:
        self.first = dict.fromkeys(range(len(ends)), 0)
        self.ends = dict(enumerate(ends))
        self.generation = 0
        self.starts_at_latest = False

    def grow(self, by: int) -> None:
        self.ends = {number: end + by for number, end in self.ends.items()}

    @property
    def topic_id(self) -> bytes:
        return topic_id_of("t", self.generation)

    def view(self) -> LogView:
        edges = {
            TopicPartition("t", number): LogEdges(self.first[number], end)
            for number, end in self.ends.items()
        }
        return LogView(edges, {"t": self.topic_id})


class LogPlanner(PipelinePlanner):
    """Plans over a `Log` as the cluster's planner does, with the same decisions."""

    def __init__(self, log: Log, *, at_most: int) -> None:
        self._log = log
        self._view = log.view()
        self._at_most = at_most

    def topics(self) -> list[str]:
        return ["t"]

    def described(self) -> dict[str, DescribedTopic]:
        return {"t": DescribedTopic(self._log.topic_id, len(self._log.ends))}

    def look_again(self) -> None:
        self._view = self._log.view()

    def starts(self) -> StreamOffsets:
        edges, from_latest = self._view.edges, self._log.starts_at_latest
        starts = {one: edges[one].behind_last if from_latest else edges[one].first for one in edges}
        return StreamOffsets(starts, self._view.topic_ids)

    def end_of_batch(self, start: StreamOffsets) -> StreamOffsets:
        step = begin_next_batch(start, self._view)
        if step.losses:
            raise DataLoss(step.losses[0].what)
        return next_offsets(start, step, self._view, at_most=self._at_most)

    def ranges(self, start: StreamOffsets, end: StreamOffsets) -> list[OffsetRange]:
        ranges, losses = plan_batch(start, end, self._log.view())
        if losses:
            raise DataLoss(losses[0].what)
        # As Spark's tasks have them: in pieces.
        return [
            OffsetRange(one.topic_partition, start, min(start + 3, one.end), one.topic_id)
            for one in ranges
            for start in range(one.start, one.end, 3)
        ]

    def waiting(self, start: StreamOffsets) -> int:
        return sum(waiting_offsets(begin_next_batch(start, self._view), self._view).values())

    def topic_ids(self, topics: list[str]) -> dict[str, bytes]:
        return {topic: self._log.topic_id for topic in topics}

    def earliest(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {one: self._log.first[one.partition] for one in partitions}

    def subscription(self) -> Subscription:
        return Subscription(topics=("t",))


class LocalAdminClient(AdminClient):
    """The admin client's calls, carried out by the controller's own manager, on a log."""

    def __init__(self, cluster: "Cluster", tick: Tick) -> None:
        self._cluster = cluster
        self._tick = tick

    def begin_pipeline_run(self, name: str, **asked: Any) -> Pipeline:  # noqa: ANN401 - as the call
        return self._asked("begin", calls.begin_run(name, **asked))

    def commit_pipeline(
        self,
        name: str,
        *,
        steps: Sequence[PipelineStep],
        **asked: Any,  # noqa: ANN401 - as the call
    ) -> Pipeline:
        return self._asked("commit", calls.commit(name, steps=steps, **asked))

    def renew_pipeline_run(self, name: str, **asked: Any) -> Pipeline:  # noqa: ANN401 - as the call
        return self._asked("renew", calls.renew_run(name, **asked))

    def _asked(self, label: str, steps: Steps[Pipeline]) -> Pipeline:
        self._tick(f"{label}: before")
        found = self._cluster.carry_out(steps)
        self._tick(f"{label}: after")
        return found


class Cluster:
    """Where it is kept how far pipelines are."""

    def __init__(self) -> None:
        self.metadata = MetadataLogBuilder()
        self.metadata.start_broker(1)
        self.metadata.elect_controller(1)
        self.now_ms = 1_000_000
        self.asked: list[str] = []

    def carry_out(self, steps: Steps[Pipeline]) -> Pipeline:
        question: Any = next(steps)
        self.asked.append(question.request.WhichOneof("action"))
        tenure = ControllerTenure(BrokerId(1), ControllerEpoch(1))
        try:
            decision = pipeline_manager.alter(
                self.metadata.image, question.request, tenure=tenure, now_ms=self.now_ms
            )
        except KafkaError as error:
            raise RequestFailed(error.code, error.message) from error
        if decision.operation is not None:
            assert self.metadata.transact(decision.operation).ok
        state = self.metadata.image.pipelines[question.request.name]
        answer = admin_pb2.AlterPipelineResponse(
            pipeline=encode_pipeline(question.request.name, state)
        )
        try:
            steps.send(answer)
        except StopIteration as end:
            result: Pipeline = end.value
            return result
        raise AssertionError("one question, one answer")

    def reset(self, *offsets: int, generation: int = 0) -> None:
        topic = PipelineTopic(topic="t", topic_id=topic_id_of("t", generation), offsets=offsets)
        self.now_ms += LEASE_MS
        self.carry_out(calls.reset(NAME, [topic]))

    @property
    def offsets(self) -> tuple[int, ...]:
        (topic,) = self.metadata.image.pipelines[NAME].topics
        return topic.offsets


class MemoryFiles(HadoopFiles):
    """A sink where moving is copying and deleting, as in S3; each step is a tick.

    ``content``: text by path. What was written is seen at once by all.
    """

    def __init__(self, content: dict[str, str], tick: Tick) -> None:
        self._content = content
        self._tick = tick

    def below(self, path: str) -> Iterator[FoundFile]:
        self._tick("list")
        folder = f"{path}/" if path else ""
        for one in [one for one in sorted(self._content) if one.startswith(folder)]:
            yield FoundFile(one, NOW_MS)

    def read_text(self, path: str) -> str:
        self._tick("read")
        return self._content[path]

    def write_text(self, path: str, text: str) -> None:
        self._tick("text: before")
        self._content[path] = text[: len(text) // 2]
        self._tick("text: half")
        self._content[path] = text
        self._tick("text: after")

    def move(self, source: str, target: str) -> None:
        self._tick("move: before")
        if source not in self._content:
            raise SinkError(f"{source} is gone")
        content = self._content[source]
        self._tick("move: on its way")
        assert target not in self._content, "no two batches have a name in common"
        self._content[target] = content
        self._tick("move: copied")
        self._content.pop(source, None)

    def delete(self, path: str) -> None:
        self._tick("delete")
        for one in list(self._content):
            if one == path or one.startswith(f"{path}/"):
                self._tick("delete: a file")
                self._content.pop(one, None)

    def rows(self, path: str) -> int:
        return len(self._content[path].split())


class MemoryRows(SparkRows):
    """Writes the offsets of ranges into files in memory, as Spark lays them out; each is a tick."""

    def __init__(self, content: dict[str, str], tick: Tick) -> None:
        self._content = content
        self._tick = tick

    def write(self, ranges: Sequence[OffsetRange], path: str) -> None:
        self._tick("write: before")
        for one in ranges:
            by_day: dict[int, list[int]] = {}
            for offset in range(one.start, one.end):
                by_day.setdefault(offset // DAY, []).append(offset)
            topic, number = one.topic_partition
            for day, offsets in by_day.items():
                date = datetime.date(2026, 1, 1) + datetime.timedelta(days=day)
                folder = f"{path}/topic={topic}/partition={number}/date={date}"
                name = f"part-{one.start:05}-uuid.c000.zstd.parquet"
                self._content[f"{folder}/{name}"] = " ".join(map(str, offsets))
                self._tick("write: a file")
        self._content[f"{path}/_SUCCESS"] = ""
        self._tick("write: after")


class RememberedProgress(RunProgress):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def planned(self, offsets: int) -> None:
        self.told.append(("planned", offsets))

    def begun(self, batch: PipelineBatch) -> None:
        self.told.append(("begun", batch.size))

    def committed(self, batch: PipelineBatch, rows: int) -> None:
        self.told.append(("committed", rows))


class World:
    """One pipeline from the topic ``t`` into a folder."""

    def __init__(self, *ends: int, at_most: int = 20) -> None:
        self.content: dict[str, str] = {}
        self.log = Log(*ends)
        self.cluster = Cluster()
        self.at_most = at_most
        self.columns = folder_columns(())
        self.progress = RememberedProgress()
        self._runs = 0

    def run(self, tick: Tick = never) -> PipelineRunner:
        """A whole run; the exception that ends it comes out."""
        self._runs += 1
        admin = LocalAdminClient(self.cluster, tick)
        begun = admin.begin_pipeline_run(
            NAME, owner=f"run {self._runs}", lease_ms=LEASE_MS, sink="/sink", take_over=True
        )
        run = PipelineRunner(
            ActiveRun(admin, begun, LEASE_MS),
            sink=Sink(NAME, MemoryFiles(self.content, tick), self.columns),
            planner=LogPlanner(self.log, at_most=self.at_most),
            rows=MemoryRows(self.content, tick),
            progress=self.progress,
        )
        run.prepare(NOW_MS)
        run.work()
        return run

    def attempt(self, tick: Tick) -> None:
        """A run that may be killed, or find that it is not in charge, or its files gone."""
        try:
            self.run(tick)
        except (Killed, PipelineError):
            return

    # -- what a reader sees ----------------------------------------------------------------------

    def seen(self) -> dict[int, list[int]]:
        """Offsets by partition, sorted, in what a reader of Parquet looks at."""
        found: dict[int, list[int]] = {}
        for path, text in self.content.items():
            parts = path.split("/")
            if not any(part.startswith(("_", ".")) for part in parts):
                number = int(parts[1].removeprefix("partition="))
                found.setdefault(number, []).extend(map(int, text.split()))
        return {number: sorted(offsets) for number, offsets in sorted(found.items())}

    def expected(self, starts: Mapping[int, int] | None = None) -> dict[int, list[int]]:
        starts = starts or {}
        return {
            number: list(range(starts.get(number, 0), end))
            for number, end in self.log.ends.items()
            if end > starts.get(number, 0)
        }

    def check(self) -> None:
        """Each offset once, and the cluster knows of it."""
        assert self.seen() == self.expected()
        assert self.cluster.offsets == tuple(self.log.ends.values())
