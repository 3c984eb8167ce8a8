"""The automatic creation of topics that a client's request needs.

A request for the metadata of a topic creates it (auto.create.topics.enable), and so does a request
for a coordinator; see ``coordinator_topics``.
"""

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from quorate.broker.changes.table import CREATE_TOPICS
from quorate.broker.control.controller_forwarder import ControllerForwarder
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.security.principal import CLUSTER_ADMIN
from quorate_proto.v1 import admin_pb2, errors_pb2

_CREATION_WAIT_S: Final = 1.0
"""The time for which a Metadata request waits for a creation before it responds with
LEADER_NOT_AVAILABLE. Later responses of its connection wait too, so this must stay short. The
creation itself continues.
"""

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
"""The outcomes after which another request of the client finds the topic, or creates it."""


class TopicCreations:
    """The creations in progress. Many clients that need the same new topic cause only one
    creation.
    """

    def __init__(self) -> None:
        self._in_progress: dict[str, asyncio.Task[int]] = {}

    def begin(
        self,
        forwarder: ControllerForwarder,
        context: RequestContext,
        api: str,
        topic: admin_pb2.NewTopic,
    ) -> asyncio.Task[int]:
        """Return a task whose result is an error code. The creation continues even if nobody
        waits for it.
        """
        task = self._in_progress.get(topic.name)
        if task is None:
            task = asyncio.get_running_loop().create_task(_create(forwarder, context, api, topic))
            self._in_progress[topic.name] = task
            task.add_done_callback(lambda _: self._in_progress.pop(topic.name, None))
        return task


class TopicAutoCreation:
    """Creates topics for clients that request their metadata."""

    def __init__(self) -> None:
        self._creations = TopicCreations()

    async def create(
        self, forwarder: ControllerForwarder, context: RequestContext, names: Sequence[str]
    ) -> Mapping[str, int]:
        """Create topics. Return an error code for each name, which is LEADER_NOT_AVAILABLE if
        the client should try again.
        """
        tasks = {
            name: self._creations.begin(forwarder, context, "Metadata", _as_configured(name))
            for name in names
        }
        await asyncio.wait(tasks.values(), timeout=_CREATION_WAIT_S)
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
    forwarder: ControllerForwarder, context: RequestContext, api: str, topic: admin_pb2.NewTopic
) -> int:
    """Create a topic as the cluster's own user, whose quota is charged for topics that are
    created automatically (Q13).
    """
    context = dataclasses.replace(context, principal=CLUSTER_ADMIN)
    response = await forwarder.forward(
        CREATE_TOPICS,
        admin_pb2.CreateTopicsRequest(
            context=context.for_controller(api, _CREATION_TIMEOUT_MS), topics=[topic]
        ),
    )
    return response.error_code or (response.topics[0].error_code if response.topics else 0)
