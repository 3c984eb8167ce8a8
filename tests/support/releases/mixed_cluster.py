"""A cluster of real processes, each of which runs the release that the test has chosen for it."""

import asyncio
import dataclasses
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from quorate.cluster.layout import Node, NodeKind, load_nodes, write_config
from quorate.cluster.local import LocalCluster, NodeKey
from quorate.cluster.settings import check_settings
from quorate.quorum.client.directory import VoterDirectory
from quorate.quorum.quorum_config import QUORUM_VOTERS
from quorate.testing import RunningCluster
from quorate_proto.v1.quorum_pb2 import QuorumStatusResponse
from tests.support.cli import quorate
from tests.support.installed_wheel import InstalledWheel
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_whole

REFUSAL_TIMEOUT_S = 30.0
MAX_LAG = 20
"""Entries that a voter may lack under load and still keep up."""


class ReleasedCluster(LocalCluster):
    """Starts each node with the Python in whose environment its release is installed."""

    releases: dict[NodeKey, InstalledWheel]

    def python_of(self, node: Node) -> str:
        return str(self.releases[node.kind, node.id].python)


class MixedCluster(RunningCluster):
    """A running cluster whose nodes change from one release to another."""

    def __init__(self, cluster: ReleasedCluster) -> None:
        super().__init__(cluster)
        self._released = cluster

    def install(self, kind: NodeKind, node_id: int, release: InstalledWheel) -> None:
        """Let the node run that release from its next start on."""
        self._released.releases[kind, node_id] = release

    def bounce_voter(self, voter_id: int, release: InstalledWheel) -> None:
        """Stop the voter, start it with that release, and wait until it follows or leads."""
        self.install("quorum", voter_id, release)
        self.stop_voter(voter_id)
        self.restart_voter(voter_id)
        wait_until(lambda: self._keeps_up(voter_id), f"voter {voter_id} to keep up")

    def bounce_broker(
        self, broker_id: int, release: InstalledWheel, config: Mapping[str, object] | None = None
    ) -> None:
        """Stop the broker, start it with that release and ``config`` added to its own, and wait
        until every replica is in sync.
        """
        self.install("broker", broker_id, release)
        self.stop_broker(broker_id)
        self.configure(broker_id, config or {})
        self.restart_broker(broker_id)
        wait_until_whole(self)

    def empty_folder(self, kind: NodeKind, node_id: int) -> None:
        """Delete the data of a node that does not run."""
        shutil.rmtree(self.folder / f"{kind}-{node_id}")

    def set_folder_aside(self, kind: NodeKind, node_id: int) -> Path:
        """Give a node that does not run an empty folder, and return where its own one is."""
        folder = self.folder / f"{kind}-{node_id}"
        return folder.rename(folder.with_suffix(".aside"))

    def put_folder_back(self, kind: NodeKind, node_id: int, kept: Path) -> None:
        """Undo ``set_folder_aside``."""
        self.empty_folder(kind, node_id)
        kept.rename(self.folder / f"{kind}-{node_id}")

    def replace_voter(self, voter_id: int, release: InstalledWheel) -> None:
        """Remove the voter, and add it again with an empty folder and that release."""
        at = ("--data", str(self.folder))
        address = voter_address(self._released.node("quorum", voter_id))
        self.stop_voter(voter_id)
        quorate("quorum", "remove-voter", str(voter_id), *at)
        self.empty_folder("quorum", voter_id)
        self.install("quorum", voter_id, release)
        self.restart_voter(voter_id)
        quorate("quorum", "add-voter", address, *at)
        wait_until(lambda: self._keeps_up(voter_id), f"voter {voter_id} to keep up")

    def configure(self, broker_id: int, config: Mapping[str, object]) -> None:
        """Change the broker's configuration file."""
        for node in load_nodes(self.folder):
            if (node.kind, node.id) == ("broker", broker_id):
                write_config(dataclasses.replace(node, config={**node.config, **config}))

    def wait_until_it_ends(self, kind: NodeKind, node_id: int) -> str:
        """Wait until the node has ended by itself, and return the end of its log."""
        node = self._released.node(kind, node_id)
        wait_until(
            lambda: self._released.pid(node) is None,
            f"{node} to end by itself",
            timeout_s=REFUSAL_TIMEOUT_S,
        )
        last = self.voter_log if kind == "quorum" else self.broker_log
        return "\n".join(last(node_id, 5))

    def voter_states(self) -> list[QuorumStatusResponse]:
        """Return what each voter that answers says of the quorum."""
        return asyncio.run(self._ask_voters())

    def _keeps_up(self, voter_id: int) -> bool:
        """Return whether the voter answers, and the leader hears it and waits for none of its
        entries.
        """
        states = {state.voter_id: state for state in self.voter_states()}
        leader = states.get(max((state.leader_id for state in states.values()), default=0))
        if leader is None or voter_id not in states:
            return False
        return all(
            voter.voter_id == leader.voter_id or (voter.connected and 0 <= voter.lag <= MAX_LAG)
            for voter in leader.voters
        )

    async def _ask_voters(self) -> list[QuorumStatusResponse]:
        addresses = [self.voter_grpc_address(voter_id) for voter_id in self.voter_ids]
        directory = VoterDirectory(addresses, self.quorum_security())
        try:
            answers = await asyncio.gather(
                *map(directory.status, addresses), return_exceptions=True
            )
        finally:
            await directory.close()
        return [answer for answer in answers if isinstance(answer, QuorumStatusResponse)]


def voter_address(node: Node) -> str:
    """Return how commands name that voter: id@host:raft/grpc."""
    entries = str(node.config[QUORUM_VOTERS.name]).split(",")
    return next(entry for entry in entries if entry.startswith(f"{node.id}@"))


@contextmanager
def mixed_cluster(
    release: InstalledWheel,
    *,
    brokers: int,
    voters: int,
    config: Mapping[str, object] | None = None,
) -> Iterator[MixedCluster]:
    """Run a new cluster, all of that release."""
    folder = Path(tempfile.mkdtemp(prefix="quorate-releases-"))
    cluster = ReleasedCluster.create(
        folder / "cluster",
        voters=voters,
        brokers=brokers,
        port=0,
        settings=check_settings(config or {}),
        progress=lambda line: None,
        attached=True,
    )
    cluster.releases = {(node.kind, node.id): release for node in cluster.nodes}
    try:
        cluster.start()
        yield MixedCluster(cluster)
    finally:
        cluster.stop(graceful=False)
        shutil.rmtree(folder)
