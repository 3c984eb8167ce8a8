"""The position of a table in its topics, and which store is right after a crash. It is pure.

Two stores know how far a table is. The *table* has the position in the same atomic commit as the
rows, so it always knows exactly which offsets it holds. The *quorum* has the position as that of
any pipeline, and is written after the table. `decide` compares both for one partition:

==========  =========  =====  ====================================================================
quorum      table      reset  step
==========  =========  =====  ====================================================================
none        none       any    BEGIN: the options of the source say where
q           none       no     READ from q: nothing of the partition is in the table yet
q           q          any    READ from q
q < t       t          no     MOVE_QUORUM to t: a run was killed between the two commits
q > t       t          no     MOVE_QUORUM to t: the table was set back, so its rows are gone
none        t          any    MOVE_QUORUM to t: the quorum has forgotten the pipeline
q           t or none  yes    MOVE_TABLE to q: an operator has reset the pipeline
another id  t          no     REFUSE: the topics are not the same one
==========  =========  =====  ====================================================================
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from quorate.common.topic_partition import TopicPartition
from quorate.tables.write_mode import WriteMode

VERSIONS: Final = {WriteMode.APPEND: 1, WriteMode.UPSERT: 2}
"""The version of the form of a position. Releases that know only version 1 append, so they must not
read the position of a table that is kept by upserts."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far one store is in one partition: the next offset, and the id of the topic."""

    topic_id: bytes
    offset: int


class Action(Enum):
    """What brings the two stores into agreement."""

    BEGIN = "begin"
    READ = "read"
    MOVE_QUORUM = "move the quorum"
    MOVE_TABLE = "move the table"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Step:
    """What to do about one partition, and the offset at which both stores are afterwards."""

    action: Action
    offset: int = -1


def decide(quorum: Mark | None, table: Mark | None, *, was_reset: bool = False) -> Step:
    """Return what to do about a partition before anything more of it is read.

    Args:
        quorum: the mark of the quorum; None if the pipeline has not begun the partition.
        table: the mark of the table; None if the table holds nothing of the partition.
        was_reset: an operator has set the pipeline to the quorum's offsets, and the table does not
            agree with them yet.
    """
    if quorum is None:
        return Step(Action.BEGIN) if table is None else Step(Action.MOVE_QUORUM, table.offset)
    if quorum == table:
        return Step(Action.READ, quorum.offset)
    if was_reset:
        return Step(Action.MOVE_TABLE, quorum.offset)
    if table is None:
        return Step(Action.READ, quorum.offset)
    if table.topic_id != quorum.topic_id:
        return Step(Action.REFUSE)
    return Step(Action.MOVE_QUORUM, table.offset)


@dataclass(frozen=True, slots=True)
class TablePosition:
    """The position that a table has: part of each of its commits.

    ``commits`` grows by one with each commit of the pipeline. A writer that finds another number
    than it expects knows that another run has written.
    """

    commits: int = 0
    run_epoch: int = 0
    marks: Mapping[TopicPartition, Mark] = field(default_factory=dict)
    mode: WriteMode = WriteMode.APPEND
    """The mode by which records have changed the table so far."""

    def moved(
        self, run_epoch: int, marks: Mapping[TopicPartition, Mark], mode: WriteMode
    ) -> "TablePosition":
        """Return the position after a commit in this mode that moves these partitions."""
        return TablePosition(self.commits + 1, run_epoch, {**self.marks, **marks}, mode)

    def to_json(self) -> dict[str, Any]:
        """Return the form in which a table keeps the position."""
        topics: dict[str, Any] = {}
        for (topic, number), mark in sorted(self.marks.items()):
            one = topics.setdefault(topic, {"id": mark.topic_id.hex(), "offsets": {}})
            one["offsets"][str(number)] = mark.offset
        return {
            "version": VERSIONS[self.mode],
            "commits": self.commits,
            "runEpoch": self.run_epoch,
            "topics": topics,
        }


def position_from_json(found: Mapping[str, Any]) -> TablePosition:
    """Return the position that a table keeps.

    Raises:
        ValueError: it is not of this form, or a newer version wrote it.
    """
    modes = {version: mode for mode, version in VERSIONS.items()}
    if (mode := modes.get(found.get("version", 0))) is None:
        known = ", ".join(map(str, modes))
        raise ValueError(f"its version is {found.get('version')}, and this Quorate knows {known}")
    try:
        marks = {
            TopicPartition(topic, int(number)): Mark(bytes.fromhex(one["id"]), int(offset))
            for topic, one in found["topics"].items()
            for number, offset in one["offsets"].items()
        }
        return TablePosition(int(found["commits"]), int(found["runEpoch"]), marks, mode)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it lacks {error}") from error
