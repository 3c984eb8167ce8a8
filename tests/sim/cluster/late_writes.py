"""Writes to the quorum that come late while the sessions of who wrote them live on (C1, C15).

What they were decided on may be over by then. Sessions end what the dead sent, and sequences what
was sent twice; against these only the compare-and-set helps.
"""

from collections.abc import Callable, Sequence
from functools import partial

from quorate.common.types import TopicPartition
from quorate.metadata_log.records import IsrChange, Operation
from tests.sim.cluster.quorum import SimulatedQuorum
from tests.sim.world import World

Overtake = Callable[[int, int], None]
"""A function that is called with a leader and the broker that it is about to let into an ISR."""


class LateWrites:
    """Holds transactions back: all of a broker's, or the next by which a replica joins an ISR."""

    def __init__(self, world: World, quorum: SimulatedQuorum, overtake: Overtake) -> None:
        self._world = world
        self._quorum = quorum
        self._overtake = overtake
        self._held_back: dict[int, float] = {}
        self._waits = False
        quorum.lateness_s = self._lateness_s

    def hold_back(self, broker_id: int, seconds: float) -> None:
        """Whatever this broker writes within so many seconds is late."""
        late_s = self._world.random.choice([0.3, 1.0, 3.0])
        self._world.note(f"writes of {broker_id} to the quorum come {late_s} s late")
        self._held_back[broker_id] = late_s
        self._world.after(seconds, partial(self._let_go, broker_id))

    def _let_go(self, broker_id: int) -> None:
        self._held_back.pop(broker_id, None)

    def wait_for_a_replica(self) -> None:
        """The next replica that catches up has joined its ISR only when much has happened."""
        self._waits = True

    def clear(self) -> None:
        """Nothing that is written from now on is late."""
        self._held_back.clear()
        self._waits = False

    def _lateness_s(self, broker_id: int, operations: Sequence[Operation]) -> float:
        late_s = self._held_back.get(broker_id, 0.0)
        if not self._waits:
            return late_s
        joining = self._joining(operations)
        if joining is None:
            return late_s
        self._waits = False
        late_s = self._world.random.choice([0.3, 1.0, 2.0])
        self._world.note(f"{broker_id} writes {late_s} s late that {joining} is in sync")
        self._world.after(0.0, partial(self._overtake, broker_id, joining))
        return late_s

    def _joining(self, operations: Sequence[Operation]) -> int | None:
        """One that an ISR change of these would let in."""
        for operation in operations:
            for record in operation.records:
                if isinstance(record, IsrChange):
                    leaf = self._quorum.image.partition(
                        TopicPartition(record.topic, record.partition)
                    )
                    for member in record.isr:
                        if leaf is not None and member.broker_id not in leaf.isr:
                            return member.broker_id
        return None
