"""Who may do what (F5): answers from the access control entries of the newest image.

Without ``authorizer.class.name`` everything is allowed. Decisions are remembered until an entry
changes: a producer's next request asks what its last one asked.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

import immutables

from broker.errors import KafkaError
from broker.security.acl_rules import SUPPORTED_OPERATIONS, decide, decide_on_any, prefix_lengths
from broker.security.authorizer_config import (
    ALLOW_EVERYONE_IF_NO_ACL_FOUND,
    AUTHORIZER_CLASS_NAME,
    SUPER_USERS,
)
from broker.security.grpc_caller import Caller, caller
from broker.security.principal import ANONYMOUS, CLUSTER_ADMIN, KafkaPrincipal, parse_principal
from metadata_log.acls import CLUSTER_NAME, AclOperation, Acls, ResourceType
from metadata_log.configuration import Values
from quorate_proto.v1 import admin_pb2, errors_pb2

log = logging.getLogger(__name__)

REMEMBERED_MAX: Final = 50_000
"""Decisions that are remembered; then all are forgotten, and made again as they are asked for."""

REMEMBERED_NAME_MAX: Final = 256
"""Of a longer resource nothing is remembered: who asks could make up names to fill memory with."""

SHOWN_NAME_MAX: Final = 256
"""Characters of a name that logs and messages show."""

_Question = tuple[str, str, AclOperation, ResourceType, str | None]
"""Principal, host, operation, type and name of the resource; None: any of the type."""


class AuthorizerSettings(NamedTuple):
    """``enabled`` False: everything is allowed. ``super_users``: as principals print."""

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


class Asker(Protocol):
    """On whose behalf something is to be done; a Kafka request's context is one."""

    @property
    def principal(self) -> KafkaPrincipal: ...

    @property
    def client_host(self) -> str: ...


def caller_of(context: admin_pb2.RequestContext) -> Caller:
    """The original asker of a request that was forwarded, or came over gRPC (F5)."""
    name = context.principal_name
    return Caller(parse_principal(name) if name else ANONYMOUS, context.client_host)


class Authorizer:
    """``acls``: the entries in force."""

    def __init__(self, acls: Callable[[], Acls], settings: AuthorizerSettings) -> None:
        self._acls = acls
        self._settings = settings
        self._decided_for: Acls | None = None
        self._decided: dict[_Question, bool] = {}
        self._prefix_lengths = prefix_lengths(immutables.Map())

    @property
    def enabled(self) -> bool:
        return self._settings.enabled

    @property
    def basis(self) -> object:
        """What decisions are made from: while it is the same object, they are the same."""
        return self._acls() if self._settings.enabled else None

    def require_enabled(self) -> None:
        """Entries are only told and changed where they mean anything.

        Raises:
            KafkaError: SECURITY_DISABLED.
        """
        if not self._settings.enabled:
            raise KafkaError(
                errors_pb2.SECURITY_DISABLED,
                f"No Authorizer is configured: set {AUTHORIZER_CLASS_NAME.name} on every broker",
            )

    def rights_of(self, asker: Asker) -> "Rights":
        return Rights(self, asker.principal, asker.client_host)

    def rights_of_caller(self) -> "Rights":
        """Of who makes the gRPC call that is being served."""
        return self.rights_of(caller())

    def allowed(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str | None,
    ) -> bool:
        """Whether ``principal`` may do it; ``resource_name`` None: with any such resource."""
        if not self._settings.enabled:
            return True
        who = str(principal)
        if who in self._settings.super_users or principal == CLUSTER_ADMIN:
            return True
        acls = self._acls()
        if acls is not self._decided_for:
            self._decided_for, self._prefix_lengths = acls, prefix_lengths(acls)
            self._decided = {}
        elif len(self._decided) >= REMEMBERED_MAX:
            self._decided = {}
        question = (who, host, operation, resource_type, resource_name)
        if resource_name is not None and len(resource_name) > REMEMBERED_NAME_MAX:
            return self._decide(acls, question)
        known = self._decided.get(question)
        if known is None:
            known = self._decided[question] = self._decide(acls, question)
        return known

    def _decide(self, acls: Acls, question: _Question) -> bool:
        who, host, operation, resource_type, name = question
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
    """What one asker may do. Refusals are logged, but where it is only looked what there is."""

    def __init__(self, authorizer: Authorizer, principal: KafkaPrincipal, host: str) -> None:
        self._authorizer = authorizer
        self.principal = principal
        self._host = host

    def require_authorizer(self) -> None:
        """As ``Authorizer.require_enabled``."""
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
        """Whether there may be a resource of the type with which it is allowed (KIP-679)."""
        allowed = self._authorizer.allowed(
            self.principal, self._host, operation, resource_type, None
        )
        if not allowed:
            self._log_denied(operation, resource_type, "any")
        return allowed

    def require_cluster(self, operation: AclOperation) -> None:
        """As ``may_cluster``.

        Raises:
            KafkaError: CLUSTER_AUTHORIZATION_FAILED.
        """
        if not self.may_cluster(operation):
            raise KafkaError(
                errors_pb2.CLUSTER_AUTHORIZATION_FAILED,
                self.refusal(operation, ResourceType.CLUSTER, CLUSTER_NAME),
            )

    def require_topic(self, operation: AclOperation, name: str) -> None:
        """As ``may_topic``.

        Raises:
            KafkaError: TOPIC_AUTHORIZATION_FAILED.
        """
        if not self.may_topic(operation, name):
            raise KafkaError(
                errors_pb2.TOPIC_AUTHORIZATION_FAILED,
                self.refusal(operation, ResourceType.TOPIC, name),
            )

    def require_idempotent_write(self) -> None:
        """Whoever may write to any topic may do so idempotently (KIP-679).

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
        """As ``may_group``.

        Raises:
            KafkaError: GROUP_AUTHORIZATION_FAILED.
        """
        if not self.may_group(operation, name):
            raise KafkaError(
                errors_pb2.GROUP_AUTHORIZATION_FAILED,
                self.refusal(operation, ResourceType.GROUP, name),
            )

    def require_transactional_id(self, operation: AclOperation, name: str) -> None:
        """As ``may``.

        Raises:
            KafkaError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
        """
        if not self.may(operation, ResourceType.TRANSACTIONAL_ID, name):
            raise KafkaError(
                errors_pb2.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                self.refusal(operation, ResourceType.TRANSACTIONAL_ID, name),
            )

    def refusal(self, operation: AclOperation, resource_type: ResourceType, name: str) -> str:
        """What somebody is told who may not."""
        return (
            f"{self.principal} from {self._host} is not allowed to {operation.name} "
            f"{resource_type.name} {name[:SHOWN_NAME_MAX]!r}"
        )

    def topics(
        self, operation: AclOperation, names: Iterable[str], *, log_denied: bool = True
    ) -> frozenset[str]:
        """Those of ``names`` on which it is allowed."""
        return frozenset(
            name
            for name in frozenset(names)
            if self.may_topic(operation, name, log_denied=log_denied)
        )

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """What is allowed with a resource, as Kafka says it: one bit per operation (KIP-430)."""
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.may(operation, resource_type, name, log_denied=False)
        )

    def cluster_operations(self) -> int:
        """As ``operations``, of the cluster: none to whom it is not described."""
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
    """As a log may hold it: whoever asks chose it, and it must not begin a line of its own."""
    cut = name[:SHOWN_NAME_MAX]
    return cut if cut.isprintable() else repr(cut)
