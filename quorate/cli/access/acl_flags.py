"""The flags of ``quorate acls``, which mean what those of kafka-acls.sh mean, and the entries or
filters that they make."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import click

from quorate.client.results import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from quorate.common.acl_types import CLUSTER_NAME

Op = AclOperation

SUPPORTED: Final[Mapping[ResourceType, tuple[AclOperation, ...]]] = {
    ResourceType.TOPIC: (
        Op.READ,
        Op.WRITE,
        Op.CREATE,
        Op.DESCRIBE,
        Op.DELETE,
        Op.ALTER,
        Op.DESCRIBE_CONFIGS,
        Op.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Op.READ,
        Op.DESCRIBE,
        Op.DELETE,
        Op.DESCRIBE_CONFIGS,
        Op.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Op.CREATE,
        Op.CLUSTER_ACTION,
        Op.DESCRIBE_CONFIGS,
        Op.ALTER_CONFIGS,
        Op.IDEMPOTENT_WRITE,
        Op.ALTER,
        Op.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Op.DESCRIBE, Op.WRITE),
    ResourceType.DELEGATION_TOKEN: (Op.DESCRIBE,),
    ResourceType.USER: (Op.CREATE_TOKENS, Op.DESCRIBE_TOKENS),
}

Resource = tuple[ResourceType, str]


@dataclass(frozen=True, kw_only=True)
class AclFlags:
    """The flags as they were given on the command line."""

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    cluster: bool = False
    transactional_ids: Sequence[str] = ()
    delegation_tokens: Sequence[str] = ()
    user_principals: Sequence[str] = ()
    pattern_type: PatternType = PatternType.LITERAL
    operations: Sequence[AclOperation] = ()
    allow_principals: Sequence[str] = ()
    deny_principals: Sequence[str] = ()
    allow_hosts: Sequence[str] = ()
    deny_hosts: Sequence[str] = ()
    producer: bool = False
    consumer: bool = False
    idempotent: bool = False

    # -- what they mean --------------------------------------------------------------------------

    def resources(self) -> list[Resource]:
        """Return the resources that the flags name."""
        named = (
            (ResourceType.TOPIC, self.topics),
            (ResourceType.GROUP, self.groups),
            (ResourceType.CLUSTER, [CLUSTER_NAME] if self.cluster else []),
            (ResourceType.TRANSACTIONAL_ID, self.transactional_ids),
            (ResourceType.DELEGATION_TOKEN, self.delegation_tokens),
            (ResourceType.USER, self.user_principals),
        )
        return [(kind, name.strip()) for kind, names in named for name in names]

    def to_add(self) -> list[AclBinding]:
        """Return the entries to add.

        Raises:
            click.UsageError: the flags do not make any entry.
        """
        if self.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            raise click.UsageError(
                f"A '--resource-pattern-type' value of '{self.pattern_type.name.lower()}' is not "
                "valid when adding acls."
            )
        self._check_resources()
        if not self.allow_principals and not self.deny_principals:
            raise click.UsageError(
                "You must specify one of: --allow-principal, --deny-principal when trying to add "
                "ACLs."
            )
        return [
            AclBinding(
                resource_type=kind,
                resource_name=name,
                pattern_type=self.pattern_type if kind is not ResourceType.CLUSTER else LITERAL,
                principal=principal,
                host=host,
                operation=operation,
                permission=permission,
            )
            for (kind, name), operation in self._done_with()
            for permission, principal, host in self._by_whom()
        ]

    def to_remove(self) -> list[AclFilter]:
        """Return the filters whose entries are to be removed.

        Without principals, all entries of the named resources are removed.

        Raises:
            click.UsageError: no resource is named.
        """
        self._check_resources()
        if not self.allow_principals and not self.deny_principals:
            return self.to_list()
        return [
            AclFilter(
                resource_type=kind,
                resource_name=name,
                pattern_type=self.pattern_type,
                principal=principal,
                host=host,
                operation=operation,
                permission=permission,
            )
            for (kind, name), operation in self._done_with()
            for permission, principal, host in self._by_whom()
        ]

    def to_list(self, principals: Sequence[str] = ()) -> list[AclFilter]:
        """Return filters for the named resources, or one for all resources where none is named."""
        named: list[tuple[ResourceType, str | None]] = [*self.resources()]
        whose: list[str | None] = [*principals] or [None]
        pattern_type = self.pattern_type if named else PatternType.ANY
        return [
            AclFilter(
                resource_type=kind,
                resource_name=name,
                pattern_type=pattern_type,
                principal=principal,
            )
            for kind, name in named or [(ResourceType.ANY, None)]
            for principal in whose
        ]

    # -- parts -----------------------------------------------------------------------------------

    def _done_with(self) -> Iterator[tuple[Resource, AclOperation]]:
        """Yield each resource together with an operation that the entries concern."""
        if self.producer or self.consumer:
            yield from dict.fromkeys(itertools.chain(self._producing(), self._consuming()))
            return
        for resource in self.resources():
            operations = tuple(self.operations) or (Op.ALL,)
            unsupported = set(operations) - {Op.ALL, *SUPPORTED[resource[0]]}
            if unsupported:
                known = ",".join(_words(one.name) for one in SUPPORTED[resource[0]])
                raise click.UsageError(
                    f"ResourceType {resource[0].name} only supports operations {known},All"
                )
            yield from ((resource, operation) for operation in operations)

    def _producing(self) -> Iterable[tuple[Resource, AclOperation]]:
        if not self.producer:
            return
        for kind, name in self.resources():
            if kind is ResourceType.TOPIC:
                yield from (((kind, name), one) for one in (Op.WRITE, Op.DESCRIBE, Op.CREATE))
            if kind is ResourceType.TRANSACTIONAL_ID:
                yield from (((kind, name), one) for one in (Op.WRITE, Op.DESCRIBE))
        if self.idempotent:
            yield (ResourceType.CLUSTER, CLUSTER_NAME), Op.IDEMPOTENT_WRITE

    def _consuming(self) -> Iterable[tuple[Resource, AclOperation]]:
        if not self.consumer:
            return
        for kind, name in self.resources():
            if kind is ResourceType.TOPIC:
                yield from (((kind, name), one) for one in (Op.READ, Op.DESCRIBE))
            if kind is ResourceType.GROUP:
                yield (kind, name), Op.READ

    def _by_whom(self) -> Iterator[tuple[AclPermission, str, str]]:
        """Yield permission, principal and host of each entry; "*" is any host."""
        for permission, principals, hosts in (
            (AclPermission.ALLOW, self.allow_principals, self.allow_hosts),
            (AclPermission.DENY, self.deny_principals, self.deny_hosts),
        ):
            for principal, host in itertools.product(principals, hosts or ["*"]):
                yield permission, principal.strip(), host.strip()

    def _check_resources(self) -> None:
        if not self.resources():
            raise click.UsageError(
                "You must provide at least one resource: --topic <topic> or --cluster or "
                "--group <group> or --delegation-token <Delegation Token ID>"
            )
        if not self.producer and not self.consumer:
            return
        if self.operations or self.deny_principals or self.deny_hosts:
            raise click.UsageError(
                "--producer and --consumer say what is allowed: give no --operation, "
                "--deny-principal or --deny-host with them"
            )
        if self.producer and not self.topics:
            raise click.UsageError("With --producer you must specify a --topic")
        if self.consumer and not (self.topics and self.groups):
            raise click.UsageError("With --consumer you must specify a --topic and a --group")
        if self.idempotent and not self.producer:
            raise click.UsageError("The --idempotent option is only available if --producer is set")


LITERAL: Final = PatternType.LITERAL


def operation_named(word: str) -> AclOperation:
    """Parse the name of an operation: ``Read``, ``DescribeConfigs`` or ``DESCRIBE_CONFIGS``.

    Raises:
        click.UsageError: there is no such operation.
    """
    for operation in AclOperation:
        if word.replace("_", "").upper() == operation.name.replace("_", ""):
            return operation
    known = ", ".join(_words(one.name) for one in AclOperation if one is not Op.ANY)
    raise click.UsageError(f"--operation {word}: must be one of {known}")


def _words(name: str) -> str:
    """Return the name as Kafka's tools spell it: ``DESCRIBE_CONFIGS`` becomes
    ``DescribeConfigs``."""
    return name.title().replace("_", "")
