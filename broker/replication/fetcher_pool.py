"""One fetcher per leader broker; partitions move between them as leaders change (C6)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc.aio

from broker.background_tasks import BackgroundTasks
from broker.peers import Peer
from broker.replication.fetcher import ReplicaFetcher
from broker.replication.following import Following
from broker.replication.hosted import HostedPartition
from broker.replication.partition_table import PartitionTable
from metadata_log.types import BrokerEpoch, BrokerId, Endpoint

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FetchOptions:
    """How followers fetch."""

    max_wait_ms: int
    max_bytes: int


class FetcherPool:
    """Starts a fetcher for each leader that is followed, and stops it with its last partition."""

    def __init__(
        self,
        table: PartitionTable,
        options: FetchOptions,
        broker_epoch: Callable[[], BrokerEpoch | None],
        open_channel: Callable[[Peer], grpc.aio.Channel],
    ) -> None:
        self._table = table
        self._options = options
        self._broker_epoch = broker_epoch
        self._open_channel = open_channel
        self._endpoints: dict[BrokerId, Endpoint] = {}
        self._fetchers: dict[BrokerId, ReplicaFetcher] = {}
        self._stopping = BackgroundTasks()
        self._draining = False
        self._may_ask = asyncio.Event()
        self._may_ask.set()

    @asynccontextmanager
    async def told(self) -> AsyncIterator[None]:
        """Meanwhile many partitions get new leaders, here and at these leaders.

        No log is compared with a leader's before all is told: asked too early, a leader refuses,
        thousands of times where a broker has failed, and everyone asks again.
        """
        self._may_ask.clear()
        try:
            yield
        finally:
            self._may_ask.set()

    def learn_endpoint(self, broker_id: BrokerId, endpoint: Endpoint) -> None:
        """Where a broker is now; a fetcher that is connected elsewhere reconnects."""
        if self._endpoints.get(broker_id) == endpoint:
            return
        self._endpoints[broker_id] = endpoint
        fetcher = self._fetchers.get(broker_id)
        if fetcher is not None:
            fetcher.move_to(endpoint)

    def drain(self) -> None:
        """Follow in no further leader epoch: this broker is about to stop.

        What it follows it goes on to follow, until the controller has taken it out of the ISR; then
        it must not catch up and be let in again (scenario 11).
        """
        self._draining = True

    def tell_positions(self) -> None:
        """All leaders are told again how far the logs here are (``Following.tell_position``)."""
        for fetcher in self._fetchers.values():
            fetcher.session.tell_positions()

    def follow(self, hosted: HostedPartition, *, afresh: bool = False) -> None:
        """Fetch the partition from its leader, in its leader epoch.

        ``afresh``: drop the log first, once the leader has said where its own begins. Only for a
        replica that is out of the ISR in this epoch.
        """
        assert hosted.following is None, "unfollow first"
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
                broker_epoch=self._broker_epoch,
                open_channel=self._open_channel,
                may_ask=self._may_ask,
            )
            self._fetchers[replica.leader] = fetcher
            fetcher.start()
        hosted.following = Following(hosted, fetcher.session, replica.leader_epoch)
        hosted.following.start_over = afresh
        fetcher.session.add(hosted.following)

    def unfollow(self, hosted: HostedPartition) -> None:
        """From now on nothing more of the old leader is appended."""
        following, hosted.following = hosted.following, None
        if following is None:
            return
        session = following.session
        session.remove(following)
        fetcher = self._fetchers.get(session.leader)
        if fetcher is not None and fetcher.session is session and session.is_empty:
            del self._fetchers[session.leader]
            self._stopping.start(fetcher.close(), f"close-fetcher-{session.leader}")

    async def close(self) -> None:
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        await asyncio.gather(*(fetcher.close() for fetcher in fetchers), self._stopping.ended())
