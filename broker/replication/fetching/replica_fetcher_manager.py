"""One fetcher per leader broker; partitions move between them as leaders change (C6)."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.replication.fetching.partition_fetch_state import PartitionFetchState
from quorate.broker.replication.fetching.replica_fetcher import ReplicaFetcher
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.rpc.peer_channels import PeerNetwork
from quorate.common.background_tasks import BackgroundTasks
from quorate.common.types import BrokerId, Endpoint

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ReplicaFetchOptions:
    """The limits of one fetch of a follower."""

    max_wait_ms: int
    max_bytes: int


class ReplicaFetcherManager:
    """Starts a fetcher for each leader that is followed, and stops it with its last partition."""

    def __init__(
        self,
        table: PartitionTable,
        options: ReplicaFetchOptions,
        identity: BrokerIdentity,
        network: PeerNetwork,
    ) -> None:
        self._table = table
        self._options = options
        self._identity = identity
        self._network = network
        self._endpoints: dict[BrokerId, Endpoint] = {}
        self._fetchers: dict[BrokerId, ReplicaFetcher] = {}
        self._stopping = BackgroundTasks()
        self._draining = False
        self._may_ask = asyncio.Event()
        self._may_ask.set()

    @asynccontextmanager
    async def without_questions(self) -> AsyncIterator[None]:
        """Compare no log with a leader's while a command is carried out.

        Meanwhile many partitions get new leaders, here and at these leaders. A leader that is asked
        too early refuses, thousands of times where a broker has failed, and every follower has to
        ask again.
        """
        self._may_ask.clear()
        try:
            yield
        finally:
            self._may_ask.set()

    def learn_endpoint(self, broker_id: BrokerId, endpoint: Endpoint) -> None:
        """Take note of a broker's address; a fetcher that is connected elsewhere reconnects."""
        if self._endpoints.get(broker_id) == endpoint:
            return
        self._endpoints[broker_id] = endpoint
        fetcher = self._fetchers.get(broker_id)
        if fetcher is not None:
            fetcher.move_to(endpoint)

    def drain(self) -> None:
        """Follow in no further leader epoch: this broker is about to stop.

        It goes on with what it follows until the controller has taken it out of the ISR. Then it
        must not catch up and be let in again (scenario 11).
        """
        self._draining = True

    def tell_positions(self) -> None:
        """Tell all leaders again how far the logs here reach."""
        for fetcher in self._fetchers.values():
            fetcher.session.tell_positions()

    def follow(self, hosted: HostedPartition, *, afresh: bool = False) -> None:
        """Fetch the partition from its leader, in its leader epoch.

        ``afresh`` drops the log first, once the leader has said where its own begins. It is only
        for a replica that is out of the ISR in this epoch.
        """
        if self._draining:
            return
        replica = hosted.replica
        fetcher = self._fetchers.get(replica.leader)
        if fetcher is None:
            fetcher = ReplicaFetcher(
                self._table,
                replica.leader,
                self._endpoints.get(replica.leader),
                max_wait_ms=self._options.max_wait_ms,
                max_bytes=self._options.max_bytes,
                identity=self._identity,
                network=self._network,
                may_ask=self._may_ask,
            )
            self._fetchers[replica.leader] = fetcher
            fetcher.start()
        hosted.follow_with(fetcher.session)
        fetcher.session.add(PartitionFetchState(hosted, replica.leader_epoch, start_over=afresh))

    def unfollow(self, hosted: HostedPartition) -> None:
        """Have nothing more of the old leader appended from now on."""
        old = hosted.fetcher
        hosted.stop_following()
        for leader, fetcher in self._fetchers.items():
            if fetcher.session is old:
                if fetcher.session.is_empty:
                    del self._fetchers[leader]
                    self._stopping.start(fetcher.close(), f"close-fetcher-{leader}")
                return

    async def close(self) -> None:
        """Stop all fetchers."""
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        await asyncio.gather(*(fetcher.close() for fetcher in fetchers), self._stopping.ended())
