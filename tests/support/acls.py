"""Access control entries for tests, in few words."""

from quorate.broker.security.authorizer import Authorizer, AuthorizerSettings
from quorate.broker.security.grpc_caller import Caller
from quorate.broker.security.principal import ANONYMOUS
from quorate.common.acl_types import AclOperation, AclPermission, PatternType
from quorate.common.acl_types import ResourceType as Resource
from quorate.metadata_log.acls import AclEntry, AclPattern
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import AclAdded, AclRemoved
from tests.support.followers import ShownImage
from tests.support.metadata import MetadataLogBuilder

Binding = tuple[AclPattern, AclEntry]


NO_AUTHORIZER = Authorizer(ShownImage(lambda: Image()), AuthorizerSettings())
ALL_RIGHTS = NO_AUTHORIZER.rights_of(Caller(ANONYMOUS, "127.0.0.1"))


def acl(
    principal: str,
    operation: AclOperation,
    resource_type: Resource,
    name: str,
    *,
    deny: bool = False,
    prefixed: bool = False,
    host: str = "*",
) -> Binding:
    """``acl("User:a", READ, TOPIC, "orders")``: it is allowed, on that one topic."""
    permission = AclPermission.DENY if deny else AclPermission.ALLOW
    pattern_type = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return (
        AclPattern(resource_type, pattern_type, name),
        AclEntry(principal, host, operation, permission),
    )


def added(binding: Binding) -> AclAdded:
    pattern, entry = binding
    return AclAdded(
        resource_type=pattern.resource_type,
        pattern_type=pattern.pattern_type,
        resource_name=pattern.name,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission=entry.permission,
    )


def removed(binding: Binding) -> AclRemoved:
    pattern, entry = binding
    return AclRemoved(
        resource_type=pattern.resource_type,
        pattern_type=pattern.pattern_type,
        resource_name=pattern.name,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission=entry.permission,
    )


def log_with(*bindings: Binding) -> MetadataLogBuilder:
    """One broker, which is the controller and has written these."""
    log = MetadataLogBuilder()
    log.start_broker(1)
    log.elect_controller(1)
    if bindings:
        assert log.write_as_controller(*map(added, bindings)).ok
    return log
