"""``quorate acls``, with the flags and the output of kafka-acls.sh."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from quorate.cli.admin_session import open_admin
from quorate.cli.output import echo
from quorate.cli.shared_options import (
    Command,
    admin_options,
    json_option,
    print_json,
    timeout_option,
)

if TYPE_CHECKING:
    from quorate.client.admin import AdminClient
    from quorate.client.results import AclBinding, AclFilter

_PATTERN_TYPES: Final = ("any", "match", "literal", "prefixed")


def _many(flag: str, help_: str) -> Callable[[Command], Command]:
    return click.option(flag, multiple=True, help=help_)


@click.command("acls")
@admin_options
@click.option("--add", is_flag=True, help="Add access control entries.")
@click.option("--remove", is_flag=True, help="Remove access control entries.")
@click.option("--list", "list_", is_flag=True, help="List access control entries.")
@_many(
    "--topic", "Topic; '*' is every topic. Like all of these options, it may be given repeatedly."
)
@_many("--group", "Consumer group; '*' is every group.")
@click.option("--cluster", is_flag=True, help="The entries concern the cluster itself.")
@_many("--transactional-id", "Transactional id; '*' is every id.")
@_many("--delegation-token", "Id of a delegation token; '*' is every token.")
@_many(
    "--user-principal",
    "User whose tokens are concerned, for example User:alice; '*' is every user.",
)
@click.option(
    "--resource-pattern-type",
    type=click.Choice(_PATTERN_TYPES, case_sensitive=False),
    default="literal",
    show_default=True,
    help="How names of resources are matched. literal: the name itself. prefixed: every name "
    "that begins with it. --list and --remove also take match (every entry that applies to "
    "the name) and any.",
)
@_many("--operation", "Read, Write, Create, Delete, Alter, Describe and so on. Default: All.")
@_many(
    "--allow-principal", "Principal that is allowed, for example User:alice; User:* is everybody."
)
@_many("--deny-principal", "Principal that is denied, even if another entry allows it.")
@_many("--allow-host", "Host from which it is allowed. Default: any host.")
@_many("--deny-host", "Host from which it is denied. Default: any host.")
@_many("--principal", "With --list: only show entries of this principal.")
@click.option("--producer", is_flag=True, help="Add what a producer needs on the given --topic.")
@click.option(
    "--consumer", is_flag=True, help="Add what a consumer needs on the given --topic and --group."
)
@click.option(
    "--idempotent",
    is_flag=True,
    help="With --producer: also add what an idempotent producer needs.",
)
@click.option("--force", is_flag=True, help="Remove entries without asking for confirmation.")
@timeout_option(30_000)
@json_option
def acls(
    bootstrap_server: str | None,
    data: Path | None,
    add: bool,
    remove: bool,
    list_: bool,
    topic: tuple[str, ...],
    group: tuple[str, ...],
    cluster: bool,
    transactional_id: tuple[str, ...],
    delegation_token: tuple[str, ...],
    user_principal: tuple[str, ...],
    resource_pattern_type: str,
    operation: tuple[str, ...],
    allow_principal: tuple[str, ...],
    deny_principal: tuple[str, ...],
    allow_host: tuple[str, ...],
    deny_host: tuple[str, ...],
    principal: tuple[str, ...],
    producer: bool,
    consumer: bool,
    idempotent: bool,
    force: bool,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Add, remove and list access control entries.

    \b
    Example:
      quorate acls --add --allow-principal User:alice --operation Read --topic orders
      quorate acls --add --allow-principal User:app --producer --topic orders- \\
          --resource-pattern-type prefixed
      quorate acls --list --topic orders --resource-pattern-type match
      quorate acls --remove --allow-principal User:alice --operation Read --topic orders --force
    """
    from quorate.cli.access.acl_flags import AclFlags, operation_named
    from quorate.client.results import PatternType

    if add + remove + list_ != 1:
        raise click.UsageError("Command must include exactly one action: --list, --add, --remove.")
    flags = AclFlags(
        topics=topic,
        groups=group,
        cluster=cluster,
        transactional_ids=transactional_id,
        delegation_tokens=delegation_token,
        user_principals=user_principal,
        pattern_type=PatternType[resource_pattern_type.upper()],
        operations=tuple(map(operation_named, operation)),
        allow_principals=allow_principal,
        deny_principals=deny_principal,
        allow_hosts=allow_host,
        deny_hosts=deny_host,
        producer=producer,
        consumer=consumer,
        idempotent=idempotent,
    )
    new = flags.to_add() if add else []
    gone = flags.to_remove() if remove else []
    if gone and not force:
        _confirm(gone)
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        if new:
            _add(admin, new, quiet=as_json)
        if gone:
            _remove(admin, gone)
        found = _found(admin, flags.to_list(principal))
    if as_json:
        print_json([_plain(one) for one in found])
    else:
        _show("Current ACLs", found)


def _add(admin: "AdminClient", new: "Sequence[AclBinding]", *, quiet: bool) -> None:
    if not quiet:
        _show("Adding ACLs", new)
    for result in admin.create_acls(new):
        result.raise_for_error()


def _remove(admin: "AdminClient", filters: "Sequence[AclFilter]") -> None:
    for deletion in admin.delete_acls(filters):
        deletion.raise_for_error()


def _confirm(filters: "Sequence[AclFilter]") -> None:
    for one in filters:
        what = f"ACLs {_entry(one)} from" if one.principal else "all ACLs for"
        click.confirm(
            f"Are you sure you want to remove {what} resource filter `{_resource(one)}`?",
            abort=True,
        )


def _found(admin: "AdminClient", filters: "Iterable[AclFilter]") -> "list[AclBinding]":
    found = {one: None for wanted in filters for one in admin.describe_acls(wanted)}
    return sorted(found, key=_resource)


def _show(heading: str, bindings: "Iterable[AclBinding]") -> None:
    for resource, entries in groupby(sorted(bindings, key=_resource), key=_resource):
        echo(f"{heading} for resource `{resource}`: ")
        for one in entries:
            echo(f" \t{_entry(one)}")
        echo()


def _resource(one: "AclBinding | AclFilter") -> str:
    return (
        f"ResourcePattern(resourceType={one.resource_type.name}, name={one.resource_name}, "
        f"patternType={one.pattern_type.name})"
    )


def _entry(one: "AclBinding | AclFilter") -> str:
    return (
        f"(principal={one.principal}, host={one.host}, operation={one.operation.name}, "
        f"permissionType={one.permission.name})"
    )


def _plain(one: "AclBinding") -> dict[str, str]:
    return {
        "resource_type": one.resource_type.name,
        "resource_name": one.resource_name,
        "pattern_type": one.pattern_type.name,
        "principal": one.principal,
        "host": one.host,
        "operation": one.operation.name,
        "permission": one.permission.name,
    }
