"""The authorizer (F5). It decides by the access control entries of the newest metadata image.

Without ``authorizer.class.name`` everything is allowed. Decisions are cached until an entry
changes, because the next request of a producer needs the same decision as its last one.
"""

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

import immutables

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.authorizer import (
    ALLOW_EVERYONE_IF_NO_ACL_FOUND,
    AUTHORIZER_CLASS_NAME,
    SUPER_USERS,
)
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.security.acl_rules import (
    SUPPORTED_OPERATIONS,
    decide,
    decide_on_any,
    prefix_lengths,
)
from quorate.broker.security.grpc_caller import Caller, caller
from quorate.broker.security.principal import (
    ANONYMOUS,
    CLUSTER_ADMIN,
    KafkaPrincipal,
    parse_principal,
)
from quorate.common.acl_types import CLUSTER_NAME, AclOperation, ResourceType
from quorate.common.configuration import Values
from quorate.metadata_log.acls import Acls
from quorate_proto.v1 import admin_pb2, errors_pb2

log = logging.getLogger(__name__)

CACHED_DECISIONS_MAX: Final = 50_000
"""The size of the cache of decisions. When the cache is full, it is cleared, and decisions are made
again.
"""

CACHED_NAME_LENGTH_MAX: Final = 256
"""The longest name whose decisions are cached. Otherwise a client could fill memory with names that
it invents.
"""

LOGGED_NAME_LENGTH_MAX: Final = 256
"""The most characters of a name that logs and messages show."""

_DecisionKey = tuple[str, str, AclOperation, ResourceType, str | None]
"""The key of a cached decision: principal, host, operation, type of the resource, and its name, or
None for any resource of the type.
"""


class AuthorizerSettings(NamedTuple):
    """The configuration of the authorizer. Everything is allowed unless it is ``enabled``.

    ``super_users`` are principals in their printed form, such as ``User:alice``.
    """

    enabled: bool = False
    super_users: frozenset[str] = frozenset()
    allow_everyone_if_no_acl_found: bool = False

    @classmethod
    def of(cls, config: Values) -> "AuthorizerSettings":
        names = (name.strip() for name in config[SUPER_USERS].split(";"))
        return cls(
            enabled=bool(config[AUTHORIZER_CLASS_NAME]),
            super_users=frozenset(name for name in names if name),
            allow_everyone_if_no_acl_found=config[ALLOW_EVERYONE_IF_NO_ACL_FOUND],
        )


class AuthenticatedParty(Protocol):
    """The client that an operation is authorized for, such as the context of a Kafka request."""

    @property
    def principal(self) -> KafkaPrincipal: ...

    @property
    def client_host(self) -> str: ...


def caller_of(context: admin_pb2.RequestContext) -> Caller:
    """Return the original client of a request that was forwarded or came over gRPC (F5)."""
    name = context.principal_name
    return Caller(parse_principal(name) if name else ANONYMOUS, context.client_host)


class Authorizer:
    """Decides, by the access control entries of the newest image, what a client may do."""

    def __init__(self, images: MetadataFollower, settings: AuthorizerSettings) -> None:
        self._images = images
        self._settings = settings
        self.enabled: Final = settings.enabled
        """False if everything is allowed."""
        self._cached_acls: Acls | None = None
        self._decisions: dict[_DecisionKey, bool] = {}
        self._prefix_lengths = prefix_lengths(immutables.Map())

    @property
    def basis(self) -> object:
        """The object that the decisions depend on. While it is the same object, decisions are the
        same.
        """
        return self._images.image.acls if self._settings.enabled else None

    def require_enabled(self) -> None:
        """Refuse to describe or change access control entries while the authorizer is disabled,
        because they would have no effect.

        Raises:
            KafkaError: SECURITY_DISABLED.
        """
        if not self._settings.enabled:
            raise KafkaError(
                errors_pb2.SECURITY_DISABLED,
                f"No Authorizer is configured: set {AUTHORIZER_CLASS_NAME.name} on every broker",
            )

    def rights_of(self, client: AuthenticatedParty) -> "Rights":
        return Rights(self, client.principal, client.client_host)

    def rights_of_caller(self) -> "Rights":
        """Return the rights of the client whose gRPC call is being served."""
        return self.rights_of(caller())

    def allowed(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str | None,
    ) -> bool:
        """Return whether ``principal`` may perform the operation. A ``resource_name`` of None means
        any resource of the type.
        """
        if not self._settings.enabled:
            return True
        who = str(principal)
        if who in self._settings.super_users or principal == CLUSTER_ADMIN:
            return True
        acls = self._images.image.acls
        if acls is not self._cached_acls:
            self._cached_acls, self._prefix_lengths = acls, prefix_lengths(acls)
            self._decisions = {}
        elif len(self._decisions) >= CACHED_DECISIONS_MAX:
            self._decisions = {}
        key = (who, host, operation, resource_type, resource_name)
        if resource_name is not None and len(resource_name) > CACHED_NAME_LENGTH_MAX:
            return self._decide(acls, key)
        known = self._decisions.get(key)
        if known is None:
            known = self._decisions[key] = self._decide(acls, key)
        return known

    def _decide(self, acls: Acls, key: _DecisionKey) -> bool:
        who, host, operation, resource_type, name = key
        without = self._settings.allow_everyone_if_no_acl_found
        if name is None:
            return decide_on_any(
                acls,
                who,
                host,
                operation,
                resource_type,
                lengths=self._prefix_lengths,
                allowed_without=without,
            )
        decision = decide(acls, who, host, operation, resource_type, name, self._prefix_lengths)
        return without if decision is None else decision


class Rights:
    """The rights of one client. Refusals are logged, except for requests that only make lists."""

    def __init__(self, authorizer: Authorizer, principal: KafkaPrincipal, host: str) -> None:
        self._authorizer = authorizer
        self.principal = principal
        self._host = host

    def require_authorizer(self) -> None:
        """Call ``Authorizer.require_enabled``."""
        self._authorizer.require_enabled()

    def may(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        log_denied: bool = True,
    ) -> bool:
        allowed = self._authorizer.allowed(
            self.principal, self._host, operation, resource_type, name
        )
        if not allowed and log_denied:
            self._log_denied(operation, resource_type, name)
        return allowed

    def may_topic(self, operation: AclOperation, name: str, *, log_denied: bool = True) -> bool:
        return self.may(operation, ResourceType.TOPIC, name, log_denied=log_denied)

    def may_group(self, operation: AclOperation, name: str) -> bool:
        return self.may(operation, ResourceType.GROUP, name)

    def may_cluster(self, operation: AclOperation, *, log_denied: bool = True) -> bool:
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME, log_denied=log_denied)

    def may_on_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Return whether there may be a resource of the type on which the operation is allowed
        (KIP-679)."""
        allowed = self._authorizer.allowed(
            self.principal, self._host, operation, resource_type, None
        )
        if not allowed:
            self._log_denied(operation, resource_type, "any")
        return allowed

    def require_cluster(self, operation: AclOperation) -> None:
        """Refuse the request unless ``may_cluster`` allows the operation.

        Raises:
            KafkaError: CLUSTER_AUTHORIZATION_FAILED.
        """
        if not self.may_cluster(operation):
            raise KafkaError(
                errors_pb2.CLUSTER_AUTHORIZATION_FAILED,
                self.refusal(operation, ResourceType.CLUSTER, CLUSTER_NAME),
            )

    def require_topic(self, operation: AclOperation, name: str) -> None:
        """Refuse the request unless ``may_topic`` allows the operation.

        Raises:
            KafkaError: TOPIC_AUTHORIZATION_FAILED.
        """
        if not self.may_topic(operation, name):
            raise KafkaError(
                errors_pb2.TOPIC_AUTHORIZATION_FAILED,
                self.refusal(operation, ResourceType.TOPIC, name),
            )

    def require_idempotent_write(self) -> None:
        """Refuse the request unless its client may write idempotently. A client that may write to
        any topic may do so (KIP-679).

        Raises:
            KafkaError: CLUSTER_AUTHORIZATION_FAILED.
        """
        if self.may_cluster(AclOperation.IDEMPOTENT_WRITE, log_denied=False):
            return
        if not self.may_on_any(AclOperation.WRITE, ResourceType.TOPIC):
            raise KafkaError(
                errors_pb2.CLUSTER_AUTHORIZATION_FAILED,
                "neither IDEMPOTENT_WRITE on the cluster nor WRITE on any topic is allowed",
            )

    def require_group(self, operation: AclOperation, name: str) -> None:
        """Refuse the request unless ``may_group`` allows the operation.

        Raises:
            KafkaError: GROUP_AUTHORIZATION_FAILED.
        """
        if not self.may_group(operation, name):
            raise KafkaError(
                errors_pb2.GROUP_AUTHORIZATION_FAILED,
                self.refusal(operation, ResourceType.GROUP, name),
            )

    def require_transactional_id(self, operation: AclOperation, name: str) -> None:
        """Refuse the request unless ``may`` allows the operation.

        Raises:
            KafkaError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
        """
        if not self.may(operation, ResourceType.TRANSACTIONAL_ID, name):
            raise KafkaError(
                errors_pb2.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                self.refusal(operation, ResourceType.TRANSACTIONAL_ID, name),
            )

    def refusal(self, operation: AclOperation, resource_type: ResourceType, name: str) -> str:
        """Return the error message for a client whose request is refused."""
        return (
            f"{self.principal} from {self._host} is not allowed to {operation.name} "
            f"{resource_type.name} {name[:LOGGED_NAME_LENGTH_MAX]!r}"
        )

    def topics(
        self, operation: AclOperation, names: Iterable[str], *, log_denied: bool = True
    ) -> frozenset[str]:
        """Return the ``names`` on which the operation is allowed."""
        return frozenset(
            name
            for name in frozenset(names)
            if self.may_topic(operation, name, log_denied=log_denied)
        )

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Return the operations that are allowed on a resource, in Kafka's encoding: one bit for
        each operation (KIP-430).
        """
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.may(operation, resource_type, name, log_denied=False)
        )

    def cluster_operations(self) -> int:
        """Return the operations that are allowed on the cluster. The result is 0 for a client that
        may not describe the cluster.
        """
        if not self.may_cluster(AclOperation.DESCRIBE, log_denied=False):
            return 0
        return self.operations(ResourceType.CLUSTER, CLUSTER_NAME)

    def _log_denied(self, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        log.info(
            "Principal = %s is Denied Operation = %s from host = %s on resource = %s:LITERAL:%s",
            _shown(str(self.principal)),
            operation.name,
            self._host,
            resource_type.name,
            _shown(name),
        )


def _shown(name: str) -> str:
    """Return a name in a form that is safe for the log. A client chose the name, so it must not be
    able to begin a new line of the log.
    """
    cut = name[:LOGGED_NAME_LENGTH_MAX]
    return cut if cut.isprintable() else repr(cut)
