"""The parts of a broker that can be created without input or output, and that every stage uses."""

from dataclasses import dataclass

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.config.dynamic_config import LiveConfiguration
from quorate.broker.config.node import BROKER_ID
from quorate.broker.config.tokens import (
    DELEGATION_TOKEN_SECRET_KEY,
    DELEGATION_TOKEN_SECRET_KEY_FILE,
)
from quorate.broker.control.active_controller import ActiveControllerSlot
from quorate.broker.control.controller_client import ControllerClient
from quorate.broker.control.ports import Quorum
from quorate.broker.control.readiness import Readiness
from quorate.broker.coordinator.transactions.partition_verifier import LocalCoordinatorSlot
from quorate.broker.environment import BrokerEnvironment
from quorate.broker.metadata.metadata_cache import MetadataCache
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.quota.work_turns import WorkTurns
from quorate.broker.replication.hosting.partition_limits import PartitionLimits
from quorate.broker.rpc.peer_channels import PeerChannels
from quorate.broker.security.authorizer import Authorizer, AuthorizerSettings
from quorate.broker.security.token_secrets import TokenKeys
from quorate.common.configuration import Configuration
from quorate.common.metrics.family import Metrics
from quorate.common.types import ID_BYTES, BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParts:
    """The state that the stages share. It is complete before the first stage is opened.

    The identity, the slots and the follower are small objects through which stages read what a
    later stage determines: the broker epoch, the active controller, the transaction coordinator,
    the newest image.
    """

    config: Configuration
    environment: BrokerEnvironment
    identity: BrokerIdentity
    active_controller: ActiveControllerSlot
    transaction_coordinator: LocalCoordinatorSlot
    quorum: Quorum
    images: MetadataFollower
    """Follows the metadata log once it is started, and holds the newest image."""
    cache: MetadataCache
    """The metadata that the controller sent with UpdateMetadata (C19)."""
    turns: WorkTurns
    """The turns of all long work of this broker."""
    live: LiveConfiguration
    limits: PartitionLimits
    token_keys: TokenKeys
    authorizer: Authorizer
    channels: PeerChannels
    controller_client: ControllerClient
    metrics: Metrics
    readiness: Readiness

    @classmethod
    def of(cls, config: Configuration, environment: BrokerEnvironment) -> "SharedParts":
        """Create the parts of a broker that is about to start."""
        identity = BrokerIdentity(BrokerId(config[BROKER_ID]), environment.random_bytes(ID_BYTES))
        images = MetadataFollower(environment.quorum)
        active_controller, channels = ActiveControllerSlot(), environment.peer_channels()
        live = LiveConfiguration(images, config, identity.broker_id)
        return cls(
            config=config,
            environment=environment,
            identity=identity,
            active_controller=active_controller,
            transaction_coordinator=LocalCoordinatorSlot(),
            quorum=environment.quorum,
            images=images,
            cache=MetadataCache(),
            turns=WorkTurns(),
            live=live,
            limits=PartitionLimits(live),
            token_keys=TokenKeys(
                config[DELEGATION_TOKEN_SECRET_KEY], config[DELEGATION_TOKEN_SECRET_KEY_FILE]
            ),
            authorizer=Authorizer(images, AuthorizerSettings.of(config)),
            channels=channels,
            controller_client=ControllerClient(
                identity, images=images, channels=channels, local=active_controller
            ),
            metrics=Metrics(),
            readiness=Readiness(identity, environment.quorum, images, environment.now_ms),
        )
