"""Decides which figures a person gets.

Metrics need DESCRIBE of the cluster, as they do over gRPC. The lag of a group is what any client
computes that may describe the group and all of its topics.
"""

from collections.abc import Callable, Iterable

from quorate.broker.console.figures.figure_history import about
from quorate.broker.security.authorizer import Rights
from quorate.common.acl_types import AclOperation, ResourceType

TopicsOf = Callable[[str], Iterable[str]]
"""Returns the topics of which a group has committed offsets."""


def may_see(rights: Rights, name: str, topics_of: TopicsOf) -> bool:
    """Return whether somebody with ``rights`` gets the series of that name."""
    describe = AclOperation.DESCRIBE
    _, kind, entity = about(name)
    sees_cluster = rights.may_cluster(describe, log_denied=False)
    if kind != "group" or sees_cluster:
        return sees_cluster
    return rights.may(describe, ResourceType.GROUP, entity, log_denied=False) and all(
        rights.may_topic(describe, topic, log_denied=False) for topic in topics_of(entity)
    )
