"""The parts of the broker that pages and actions use."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from quorate.broker.admin.metadata_history import MetadataHistory
from quorate.broker.console.asking.cluster_figures import ClusterFigures
from quorate.broker.console.asking.cluster_requests import ClusterRequests
from quorate.broker.console.asking.person import Person
from quorate.broker.console.health.health_index import HealthIndex
from quorate.broker.console.health.topic_health import TopicHealth
from quorate.broker.control.ports import QuorumView
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.quota.work_turns import WorkTurns
from quorate.broker.security.authorizer import Authorizer, Rights
from quorate.common.acl_types import AclOperation
from quorate.metadata_log.image import Image


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleParts:
    """What the pages read, and through which they ask and change."""

    requests: ClusterRequests
    figures: ClusterFigures
    images: MetadataFollower
    health: HealthIndex
    authorizer: Authorizer
    quorum: QuorumView
    history: MetadataHistory
    turns: WorkTurns
    wall_clock_ms: Callable[[], int]
    random_bytes: Callable[[int], bytes]
    is_encrypted: bool
    """Whether browsers reach this console over TLS."""

    @property
    def image(self) -> Image:
        """The newest image."""
        return self.images.image

    def rights(self, person: Person) -> Rights:
        return self.authorizer.rights_of(person)

    async def visible_topics(self, person: Person) -> Mapping[str, TopicHealth]:
        """Return the health of the topics that the person may describe, by name."""
        every = await self.health.topics()
        if not self.authorizer.enabled:
            return every
        rights = self.rights(person)
        describe = AclOperation.DESCRIBE
        return {
            name: health
            async for name, health in self.turns.through(tuple(every.items()))
            if rights.may_topic(describe, name, log_denied=False)
        }
