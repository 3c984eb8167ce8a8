"""Pipelines as the cluster stores them."""

from dataclasses import dataclass

from quorate_proto.v1 import admin_pb2, metadata_pb2

NOT_BEGUN = -1
"""The offset of a partition of which no record is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTopic:
    """The offsets of a topic, by partition: the first offset that is not done, -1 if none is
    done."""

    topic: str
    topic_id: bytes
    offsets: tuple[int, ...]

    def to_proto(self) -> metadata_pb2.PipelineTopic:
        return metadata_pb2.PipelineTopic(
            topic=self.topic, topic_id=self.topic_id, offsets=self.offsets
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStep:
    """One move of a partition.

    ``start`` is the recorded offset, -1 if there is none. ``end`` is the first offset that is not
    done.
    """

    topic: str
    topic_id: bytes
    partition: int
    start: int
    end: int

    def to_proto(self) -> admin_pb2.PipelineStep:
        step = admin_pb2.PipelineStep(
            topic=self.topic, topic_id=self.topic_id, partition=self.partition, to=self.end
        )
        setattr(step, "from", self.start)  # A keyword in Python.
        return step


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The progress of a pipeline and the run in charge of it. Times are in ms since the epoch.

    ``commit_epoch`` and ``commit`` are the run of the newest commit and the number of the commit in
    that run. ``rows`` counts the rows of all runs. ``rewound`` says that the sink may hold rows at
    and above the offsets. ``alive`` says that a run is active, according to the clock of the
    answering broker.
    """

    name: str
    version: int
    run_epoch: int
    sink: str
    topics: tuple[PipelineTopic, ...]
    owner: str
    started_ms: int
    commit_epoch: int
    commit: int
    committed_ms: int
    rows: int
    rewound: bool
    alive: bool

    @classmethod
    def from_proto(cls, state: metadata_pb2.PipelineState, *, alive: bool) -> "Pipeline":
        run = state.run
        return cls(
            name=state.name,
            version=state.version,
            run_epoch=state.run_epoch,
            sink=state.sink,
            topics=tuple(
                PipelineTopic(topic=one.topic, topic_id=one.topic_id, offsets=tuple(one.offsets))
                for one in state.topics
            ),
            owner=run.owner,
            started_ms=run.started_ms,
            commit_epoch=run.commit_epoch,
            commit=run.commit,
            committed_ms=run.committed_ms,
            rows=run.rows,
            rewound=state.rewound,
            alive=alive,
        )

    def topic(self, name: str) -> PipelineTopic | None:
        return next((one for one in self.topics if one.topic == name), None)
