"""Topics created because a client asked for something that needs them.

For their metadata (auto.create.topics.enable), or for a coordinator, see ``internal_topics``.
"""

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from broker.control.changes import CREATE_TOPICS
from broker.kafka.admin_context import admin_context
from broker.kafka.requests import RequestContext
from broker.kafka.services import Forwarder
from broker.security.principal import CLUSTER_ADMIN
from quorate_proto.v1 import admin_pb2, errors_pb2

_PATIENCE_S: Final = 1.0
"""How long a metadata request waits for a creation before it says LEADER_NOT_AVAILABLE. Later
answers of its connection wait too, so this must stay short; the creation itself goes on."""

_CREATION_TIMEOUT_MS: Final = 30_000

_CLUSTER_DEFAULT: Final = -1

_RETRY_SOON: Final = frozenset(
    {
        errors_pb2.NONE,
        errors_pb2.TOPIC_ALREADY_EXISTS,
        errors_pb2.REQUEST_TIMED_OUT,
        errors_pb2.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Outcomes after which asking again will find the topic, or create it."""


class Creations:
    """Those under way: many clients asking for one new topic cause one creation."""

    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Task[int]] = {}

    def begin(
        self, forwarder: Forwarder, context: RequestContext, api: str, topic: admin_pb2.NewTopic
    ) -> asyncio.Task[int]:
        """Its outcome, an error code; goes on whoever stops waiting."""
        task = self._under_way.get(topic.name)
        if task is None:
            task = asyncio.get_running_loop().create_task(_create(forwarder, context, api, topic))
            self._under_way[topic.name] = task
            task.add_done_callback(lambda _: self._under_way.pop(topic.name, None))
        return task


class AutoCreation:
    """Creations for who asked for metadata."""

    def __init__(self) -> None:
        self._creations = Creations()

    async def create(
        self, forwarder: Forwarder, context: RequestContext, names: Sequence[str]
    ) -> Mapping[str, int]:
        """Error code per name: LEADER_NOT_AVAILABLE where the client is to ask again."""
        tasks = {
            name: self._creations.begin(forwarder, context, "Metadata", _as_configured(name))
            for name in names
        }
        await asyncio.wait(tasks.values(), timeout=_PATIENCE_S)
        return {
            name: errors_pb2.LEADER_NOT_AVAILABLE
            if not task.done() or task.result() in _RETRY_SOON
            else task.result()
            for name, task in tasks.items()
        }


def _as_configured(name: str) -> admin_pb2.NewTopic:
    return admin_pb2.NewTopic(
        name=name, num_partitions=_CLUSTER_DEFAULT, replication_factor=_CLUSTER_DEFAULT
    )


async def _create(
    forwarder: Forwarder, context: RequestContext, api: str, topic: admin_pb2.NewTopic
) -> int:
    """As the cluster's own user: topics that come by themselves are charged to it (Q13)."""
    context = dataclasses.replace(context, principal=CLUSTER_ADMIN)
    response = await forwarder.carry_out(
        CREATE_TOPICS,
        admin_pb2.CreateTopicsRequest(
            context=admin_context(context, api, _CREATION_TIMEOUT_MS), topics=[topic]
        ),
    )
    return response.error_code or (response.topics[0].error_code if response.topics else 0)
