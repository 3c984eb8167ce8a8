"""The product's clock, chance, fsync and tuning, replaced while a simulation runs."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import pysyncobj.syncobj

import quorate.quorum.raft.elections
import quorate.quorum.raft.network.transport
import quorate.quorum.raft.raft_clock
import quorate.quorum.raft.raft_node
import quorate.quorum.raft.snapshot_store
import quorate.quorum.raft.storage.journal
import quorate.quorum.raft.storage.snapshot_file
import quorate.quorum.voter.watch_sources
import quorate.quorum.voter.watch_stream
from quorate.quorum.raft.network.transport import VoterNode
from tests.sim.disk import make_durable, sync_file, sync_folder
from tests.sim.transport import SNAPSHOT_BACKLOG_BYTES
from tests.sim.world import World


@contextmanager
def simulated(world: World) -> Iterator[None]:
    """Everything that reads a clock, draws or syncs does so in ``world``; as before afterwards.

    Limits that no short run would reach are lowered, by chance, so that what lies beyond them is
    reached as well. Nodes are hashed by their number: sets of them are then in the same order in
    every process.
    """

    def clock() -> float:
        return world.read_clock()

    draw = world.random
    replaced: list[tuple[Any, str, Any]] = [
        (pysyncobj.syncobj, "monotonicTime", clock),
        (pysyncobj.syncobj, "random", draw),
        (quorate.quorum.raft.raft_clock, "monotonic", clock),
        (quorate.quorum.raft.raft_clock, "time_ns", lambda: int(clock() * 1e9)),
        (quorate.quorum.raft.elections, "random", draw),
        (quorate.quorum.raft.storage.snapshot_file, "_make_durable", make_durable),
        (quorate.quorum.raft.storage.snapshot_file, "sync_folder", sync_folder),
        (quorate.quorum.raft.snapshot_store, "sync_file", sync_file),
        (quorate.quorum.raft.network.transport, "SNAPSHOT_BACKLOG_BYTES", SNAPSHOT_BACKLOG_BYTES),
        (VoterNode, "__hash__", lambda node: int(node.voter_id)),
        (quorate.quorum.raft.snapshot_store, "PIECE_BYTES", draw.choice([300, 1_000, 1 << 20])),
        (quorate.quorum.raft.storage.journal, "_GARBAGE_PER_SYNC", draw.choice([1, 5, 2_000])),
        (
            quorate.quorum.raft.raft_node,
            "_APPLIED_PER_TICK",
            applied_per_tick := draw.choice([1, 7, 5_000]),
        ),
        # As in the product a follower's rests, too, are bounded by what waits to be applied.
        (quorate.quorum.raft.raft_node, "_WORTH_A_RUN", min(500, 2 * applied_per_tick)),
        (quorate.quorum.voter.watch_sources, "_READ_ENTRIES", draw.choice([3, 50, 2_000])),
        (quorate.quorum.voter.watch_stream, "EVENT_BYTES", draw.choice([200, 2_000, 1 << 20])),
    ]
    with ExitStack() as stack:
        for owner, name, value in replaced:
            stack.enter_context(patch.object(owner, name, value))
        yield
