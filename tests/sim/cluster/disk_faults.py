"""Harms disks: makes them slow or full, replaces them, damages batches and rows, puts old copies
back."""

from pathlib import Path
from typing import TYPE_CHECKING

from quorate.broker.log.checkpoints.partition_row import PartitionRow
from quorate.broker.log.segments.damage import DamagedBatch
from quorate.common.types import BrokerId, TopicId, TopicIdPartition
from quorate.metadata_log.features import BROKER_HISTORY
from tests.sim.cluster.machine import Machine
from tests.sim.cluster.operator import Operator
from tests.sim.cluster.quorum import SimulatedQuorum
from tests.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Callable


class DiskFaults:
    """Harms the disk of one machine at a time."""

    def __init__(
        self,
        world: World,
        quorum: SimulatedQuorum,
        operator: Operator,
        machines: dict[int, Machine],
        seconds: "Callable[[], float]",
    ) -> None:
        self._world = world
        self._quorum = quorum
        self._operator = operator
        self._machines = machines
        self._seconds = seconds

    def _any(self) -> Machine:
        return self._machines[self._world.random.choice(sorted(self._machines))]

    def heal(self, machine: Machine) -> None:
        """Fast, with room, and whatever is to happen to it happens no more."""
        machine.disk.latency_s = 0.001
        machine.disk.is_full = False

    # -- slow, full, new -------------------------------------------------------------------------

    def slow(self) -> None:
        machine = self._any()
        disk, before = machine.disk, machine.disk.latency_s
        disk.latency_s = self._world.random.choice([0.03, 0.3, 1.0])
        machine.note(f"disk takes {disk.latency_s} s")

        def well() -> None:
            disk.latency_s = min(disk.latency_s, max(before, 0.001))

        self._world.after(self._seconds(), well)

    def full(self) -> None:
        """Writing fails until there is room; perhaps somebody starts the broker again then."""
        machine = self._any()
        machine.note("disk is full")
        machine.disk.is_full = True

        def room() -> None:
            machine.disk.is_full = False
            if self._world.chance(0.3):
                machine.kill(power_lost=False)

        self._world.after(self._seconds(), room)

    def replace(self) -> None:
        """The machine comes back with an empty disk (rule 8)."""
        machine = self._any()
        machine.kill(power_lost=True)
        machine.note("gets an empty disk")
        machine.disk.replace()

    # -- damage ----------------------------------------------------------------------------------

    def damage_a_log(self) -> None:
        """A batch of some log cannot be read any more: the log leaves the ISR and is replaced."""
        machine = self._any()
        store = None if machine.process is None else machine.process.store
        logs = [] if store is None else [one for one in store.logs.values() if one.size_bytes]
        if store is None or not logs:
            return
        log = self._world.random.choice(logs)
        machine.note(f"{log.topic}-{log.tip.partition} is damaged")
        machine.damaged.add(log.tip)
        store.reads.on_damaged(
            log, DamagedBatch(Path("segment"), log.number, log.log_start_offset, "")
        )

    def lose_a_row(self) -> None:
        """The table knows nothing of a partition any more: its log is absent (rule 8)."""
        machine = self._any()
        row = self._stop_for_a_row(machine)
        if row is not None:
            machine.note(f"loses the row of {row.topic}-{row.partition}")
            machine.disk.table.lose_row(row.number)

    def mistake_a_row(self) -> None:
        """A row is one of another partition, which nobody knows (rule 7), its own is absent."""
        machine = self._any()
        row = self._stop_for_a_row(machine)
        if row is not None:
            disk = machine.disk
            topic_id = TopicId(bytes([row.topic_id[0] ^ 1]) + row.topic_id[1:])
            machine.note(f"takes {row.topic}-{row.partition} for {topic_id.hex()[:4]}")
            disk.table.mistake_row(row.number, topic_id)
            disk.mistaken |= {TopicIdPartition(topic_id, row.partition)}

    def shorten_a_log(self) -> None:
        """A log ends before what it has told was committed: its end is gone (rule 8).

        Rather of a partition of which the broker is the only member of the ISR: others would bring
        back what is lost, whether it is noticed or not.
        """
        only = [one for one in self._machines.values() if self._is_alone(one)]
        machine = self._world.random.choice(only) if only else self._any()
        row = self._stop_for_a_row(machine)
        if row is None:
            return
        promised = machine.disk.table.high_watermarks().get(row.number, 0)
        if promised <= row.log_start_offset:
            return
        offset = self._world.random.randrange(row.log_start_offset, promised)
        machine.note(f"loses {row.topic}-{row.partition} from {offset} on")
        for segment in machine.disk.segments.values():
            segment.lose(row.number, offset)

    def _stop_for_a_row(self, machine: Machine) -> PartitionRow | None:
        """Stop a machine's process; any of the rows on its disk that are as old as its record,
        rather one of a partition of which it is the only member of the ISR.
        """
        if not self._is_remembered:
            return None
        machine.kill(power_lost=False)
        table = machine.disk.table
        through = table.history().hosted_through
        rows = [row for row in table.partitions() if self._created_at(row) <= through]
        alone = [row for row in rows if self._is_only_member(machine, row)]
        row = self._world.random.choice(alone or rows) if rows else None
        if row is not None:
            self._operator.kept_in_size.add(row.topic)
        return row

    def _is_alone(self, machine: Machine) -> bool:
        """Whether it is the only member of the ISR of any partition."""
        topics = self._quorum.image.topics.values()
        return any(one.isr == (machine.voter_id,) for topic in topics for one in topic.partitions)

    def _is_only_member(self, machine: Machine, row: PartitionRow) -> bool:
        topic = self._quorum.image.topic_by_id(TopicId(row.topic_id))
        if topic is None or row.partition >= len(topic.partitions):
            return False
        return topic.partitions[row.partition].isr == (machine.voter_id,)

    @property
    def _is_remembered(self) -> bool:
        """Whether the quorum remembers brokers and deletions; before, nothing tells losses."""
        return self._quorum.began_at >= BROKER_HISTORY

    def _created_at(self, row: PartitionRow) -> int:
        """When the topic was created or has grown: only what is older than the record of its
        folder is told from a new partition.
        """
        image = self._quorum.image
        topic = image.topic_by_id(TopicId(row.topic_id))
        if topic is None or topic.name in image.removals or topic.name in image.additions:
            return image.offset
        return topic.version

    # -- old copies ------------------------------------------------------------------------------

    def put_an_old_copy_back(self) -> None:
        """Some time later the folder is what it is now, and all that was written since is gone."""
        machine = self._any()
        if not self._is_remembered:
            return
        machine.note("the folder is copied")
        copy = machine.disk.copy()

        def put_back() -> None:
            known = self._quorum.image.histories.get(BrokerId(machine.voter_id))
            table = copy.table
            if known is None or (
                known.mark <= table.mark() and known.incarnation_id in table.history().incarnations
            ):
                return  # The quorum has heard of nothing since: nobody can tell the two apart.
            machine.kill(power_lost=self._world.chance(0.5))
            machine.note("the old copy of the folder is put back")
            machine.disk.put_back(copy)

        later_s = self._world.random.choice([0.5, 2.0, 8.0])
        self._world.after(later_s * self._world.between(0.5, 1.5), put_back)
