"""The stage in which a broker joins the cluster: session, metadata, registration, reports."""

from contextlib import AsyncExitStack

from quorate.broker.assembly.listener_stage import Addresses
from quorate.broker.assembly.replication_stage import ReplicationStage
from quorate.broker.assembly.shared_parts import SharedParts
from quorate.broker.config.ignored_keys import warn_of_ignored_keys
from quorate.broker.config.node import (
    BROKER_RACK,
    INTER_BROKER_PROTOCOL_VERSION,
    QUORUM_CONNECT_TIMEOUT_MS,
)
from quorate.broker.control.broker_registrar import BrokerRegistrar
from quorate.broker.control.link_reporter import LinkReporter
from quorate.broker.control.replica_reporter import ReplicaReporter
from quorate.metadata_log.records import LostReplica


async def open_session(shared: SharedParts, cleanup: AsyncExitStack) -> None:
    """Open a session with the quorum. The cluster id is known from then on.

    Raises:
        QuorumUnavailable: No voter answers in time.
    """
    await shared.quorum.start(deadline_ms=shared.config[QUORUM_CONNECT_TIMEOUT_MS])
    cleanup.push_async_callback(shared.quorum.close)


async def follow_metadata(shared: SharedParts, cleanup: AsyncExitStack) -> None:
    """Follow the metadata log, and close the channels to other brokers after that has ended."""
    cleanup.push_async_callback(shared.channels.close)
    await shared.images.start()
    cleanup.push_async_callback(shared.images.close)


async def adopt_assigned_replicas(shared: SharedParts, replication: ReplicationStage) -> None:
    """Wait until the image is up to date, and host the replicas that it assigns to this broker."""
    shared.images.subscribe(replication.configs_changed, "configs")
    image = await shared.images.wait_for(await shared.quorum.read_offset())
    warn_of_ignored_keys(image)
    await replication.log_directory_monitor.adopt(image)


async def register(
    shared: SharedParts,
    replication: ReplicationStage,
    addresses: Addresses,
    cleanup: AsyncExitStack,
) -> None:
    """Register under the addresses of the listeners. From then on the controller sends control
    requests.

    Raises:
        RegistrationRefused: The quorum will never accept this registration.
    """
    registrar = BrokerRegistrar(
        shared.quorum,
        identity=shared.identity,
        listeners=addresses.listeners,
        grpc=addresses.grpc,
        inter_broker=addresses.inter_broker,
        rack=shared.config[BROKER_RACK],
        images=shared.images,
        log_may_be_lost=replication.store.log_may_be_lost,
        lost_replicas=[
            LostReplica(topic_id=tip.topic_id, partition=tip.partition)
            for tip in replication.log_directory_monitor.declared_lost()
        ],
        inter_broker_protocol_max=shared.config[INTER_BROKER_PROTOCOL_VERSION],
    )
    shared.quorum.carry_mark(lambda: replication.store.mark)
    await registrar.start()
    cleanup.push_async_callback(registrar.close)


def report_replicas(
    shared: SharedParts, replication: ReplicationStage, cleanup: AsyncExitStack
) -> None:
    """Report replicas on a full disk, damaged ones, and broken links to the controller from now
    on."""
    reporter = ReplicaReporter(
        shared.identity,
        images=shared.images,
        controller=shared.controller_client,
        troubles=replication.log_directory_monitor,
    )
    reporter.start()
    cleanup.push_async_callback(reporter.close)
    links = LinkReporter(
        shared.identity,
        images=shared.images,
        controller=shared.controller_client,
        links=replication.replicas,
        clock=shared.environment,
    )
    links.start()
    cleanup.push_async_callback(links.close)
