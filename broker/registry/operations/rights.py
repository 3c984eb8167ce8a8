"""What a client may do with a subject: what it may do with the topic of that name
(docs/SECURITY.md)."""

from quorate.broker.registry.registry_errors import denied
from quorate.broker.registry.subjects import Subject
from quorate.broker.security.authorizer import Rights
from quorate.common.acl_types import CLUSTER_NAME, AclOperation, ResourceType


def require(rights: Rights, operation: AclOperation, subject: Subject) -> None:
    """Refuse a request about a subject, unless the client may perform the operation on its topic.

    Raises:
        RegistryError: 40301.
    """
    if not rights.may_topic(operation, subject.topic):
        raise denied(rights.refusal(operation, ResourceType.TOPIC, subject.topic))


def require_scope(rights: Rights, operation: AclOperation, scope: str | None) -> None:
    """Refuse a request about a configuration or a mode, unless the client may perform the operation
    on the topic of the subject, or on the cluster if it is that of more than one subject.

    Raises:
        RegistryError: 40301.
    """
    subject = Subject.parse(scope or "")
    if subject.name:
        require(rights, operation, subject)
    elif not rights.may_cluster(operation):
        raise denied(rights.refusal(operation, ResourceType.CLUSTER, CLUSTER_NAME))


def may_see(rights: Rights, subject: str) -> bool:
    """Return whether the client may know of a subject."""
    topic = Subject.parse(subject).topic
    return rights.may_topic(AclOperation.DESCRIBE, topic, log_denied=False)
