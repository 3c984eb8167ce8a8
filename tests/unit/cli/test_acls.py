"""``quorate acls``: what its flags mean, and what is printed; the names are kafka-acls.sh's."""

import json
from collections.abc import Sequence

import pytest

from quorate.broker.security.acl_rules import SUPPORTED_OPERATIONS
from quorate.cli.access.acl_flags import SUPPORTED
from quorate.cli.main import run
from quorate.client import admin
from quorate.client.results import (
    AclBinding,
    AclDeletion,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResult,
    PatternType,
    ResourceType,
)

Op = AclOperation
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
PREFIXED = PatternType.PREFIXED
DENY = AclPermission.DENY


class FakeAcls:
    """The entries of a cluster without brokers."""

    def __init__(self) -> None:
        self.bindings: list[AclBinding] = []
        self.deleted: list[AclFilter] = []
        self.asked: list[AclFilter] = []
        self.refusal = 0

    def create(self, new: Sequence[AclBinding]) -> list[AclResult]:
        if not self.refusal:
            self.bindings += new
        return [
            AclResult(binding=one, error_code=self.refusal, error="X", message="not so")
            for one in new
        ]

    def delete(self, filters: Sequence[AclFilter]) -> list[AclDeletion]:
        self.deleted += filters
        return [AclDeletion(deleted=(), error_code=0, error="NONE", message="") for _ in filters]

    def describe(self, wanted: AclFilter) -> list[AclBinding]:
        self.asked.append(wanted)
        return list(self.bindings)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeAcls:
    found = FakeAcls()
    monkeypatch.setattr(admin.AdminClient, "create_acls", lambda _, new: found.create(new))
    monkeypatch.setattr(admin.AdminClient, "delete_acls", lambda _, gone: found.delete(gone))
    monkeypatch.setattr(admin.AdminClient, "describe_acls", lambda _, one: found.describe(one))
    return found


def acls(*arguments: str) -> int:
    return run(["acls", "--bootstrap-server", "127.0.0.1:1", *arguments])


def binding(
    kind: ResourceType, name: str, operation: Op, principal: str = "User:a", **more: object
) -> AclBinding:
    fields = {"resource_type": kind, "resource_name": name, "principal": principal}
    return AclBinding(**fields, operation=operation, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("flags", "added"),
    [
        (
            "--allow-principal User:a --operation Read --topic t",
            [binding(TOPIC, "t", Op.READ)],
        ),
        ("--allow-principal User:a --topic t", [binding(TOPIC, "t", Op.ALL)]),
        (
            "--allow-principal User:a --operation DescribeConfigs --operation alter_configs "
            "--topic t --topic u --resource-pattern-type prefixed",
            [
                binding(TOPIC, name, operation, pattern_type=PREFIXED)
                for name in ("t", "u")
                for operation in (Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS)
            ],
        ),
        (
            "--allow-principal User:a --allow-host h1 --allow-host h2 --deny-principal User:b "
            "--operation Write --topic t",
            [
                binding(TOPIC, "t", Op.WRITE, host="h1"),
                binding(TOPIC, "t", Op.WRITE, host="h2"),
                binding(TOPIC, "t", Op.WRITE, "User:b", permission=DENY),
            ],
        ),
        (
            "--allow-principal User:a --operation Alter --cluster",
            [binding(CLUSTER, "kafka-cluster", Op.ALTER)],
        ),
        (
            "--allow-principal User:a --producer --topic t --transactional-id x --idempotent",
            [
                binding(TOPIC, "t", Op.WRITE),
                binding(TOPIC, "t", Op.DESCRIBE),
                binding(TOPIC, "t", Op.CREATE),
                binding(ResourceType.TRANSACTIONAL_ID, "x", Op.WRITE),
                binding(ResourceType.TRANSACTIONAL_ID, "x", Op.DESCRIBE),
                binding(CLUSTER, "kafka-cluster", Op.IDEMPOTENT_WRITE),
            ],
        ),
        (
            "--allow-principal User:a --consumer --topic t --group g",
            [
                binding(TOPIC, "t", Op.READ),
                binding(TOPIC, "t", Op.DESCRIBE),
                binding(GROUP, "g", Op.READ),
            ],
        ),
        (
            "--allow-principal User:a --operation Describe --delegation-token *",
            [binding(ResourceType.DELEGATION_TOKEN, "*", Op.DESCRIBE)],
        ),
        (
            "--allow-principal User:a --operation CreateTokens --user-principal User:b",
            [binding(ResourceType.USER, "User:b", Op.CREATE_TOKENS)],
        ),
    ],
)
def test_what_is_added(cluster: FakeAcls, flags: str, added: list[AclBinding]) -> None:
    assert acls("--add", *flags.split()) == 0
    assert cluster.bindings == added


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--topic t", "exactly one action"),
        ("--add --list --topic t", "exactly one action"),
        ("--add --allow-principal User:a", "at least one resource"),
        ("--remove --force", "at least one resource"),
        ("--add --topic t", "--allow-principal, --deny-principal"),
        (
            "--add --allow-principal User:a --topic t --resource-pattern-type any",
            "'any' is not valid when adding acls",
        ),
        (
            "--add --allow-principal User:a --topic t --resource-pattern-type match",
            "'match' is not valid when adding acls",
        ),
        ("--add --allow-principal User:a --operation Fly --topic t", "--operation Fly"),
        (
            "--add --allow-principal User:a --operation Write --group g",
            "ResourceType GROUP only supports operations "
            "Read,Describe,Delete,DescribeConfigs,AlterConfigs,All",
        ),
        ("--add --allow-principal User:a --producer --group g", "specify a --topic"),
        ("--add --allow-principal User:a --consumer --topic t", "--topic and a --group"),
        ("--add --allow-principal User:a --consumer --idempotent --topic t --group g", "--produc"),
        ("--add --deny-principal User:a --producer --topic t", "give no --operation"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    cluster: FakeAcls, flags: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert acls(*flags.split()) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not cluster.bindings
    assert not cluster.deleted


def test_entries_are_printed_as_kafkas_tool_prints_them(
    cluster: FakeAcls, capsys: pytest.CaptureFixture[str]
) -> None:
    assert acls("--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "t") == 0
    resource = "ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)"
    entry = "(principal=User:a, host=*, operation=READ, permissionType=ALLOW)"
    assert capsys.readouterr().out == (
        f"Adding ACLs for resource `{resource}`: \n \t{entry}\n\n"
        f"Current ACLs for resource `{resource}`: \n \t{entry}\n\n"
    )


def test_a_list_is_of_what_is_named_or_of_everything(
    cluster: FakeAcls, capsys: pytest.CaptureFixture[str]
) -> None:
    assert acls("--list") == 0
    assert acls("--list", "--topic", "t", "--resource-pattern-type", "match") == 0
    assert acls("--list", "--topic", "t", "--principal", "User:a", "--principal", "User:b") == 0
    literal = {"resource_type": TOPIC, "resource_name": "t", "pattern_type": PatternType.LITERAL}
    assert cluster.asked == [
        AclFilter(),
        AclFilter(resource_type=TOPIC, resource_name="t", pattern_type=PatternType.MATCH),
        AclFilter(**literal, principal="User:a"),  # type: ignore[arg-type]
        AclFilter(**literal, principal="User:b"),  # type: ignore[arg-type]
    ]
    assert capsys.readouterr().out == ""
    cluster.bindings.append(binding(TOPIC, "t", Op.READ))
    assert acls("--list", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "resource_type": "TOPIC",
            "resource_name": "t",
            "pattern_type": "LITERAL",
            "principal": "User:a",
            "host": "*",
            "operation": "READ",
            "permission": "ALLOW",
        }
    ]


def test_removal_asks_first_unless_it_is_forced(
    cluster: FakeAcls, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ("--remove", "--allow-principal", "User:a", "--operation", "Read", "--topic", "t")
    monkeypatch.setattr("click.confirm", _refuse)
    assert acls(*flags) == 130
    assert not cluster.deleted
    assert acls(*flags, "--force") == 0
    assert acls("--remove", "--topic", "t", "--force") == 0
    literal = {"resource_type": TOPIC, "resource_name": "t", "pattern_type": PatternType.LITERAL}
    assert cluster.deleted == [
        AclFilter(
            **literal,  # type: ignore[arg-type]
            principal="User:a",
            host="*",
            operation=Op.READ,
            permission=AclPermission.ALLOW,
        ),
        AclFilter(**literal),  # type: ignore[arg-type]
    ]


def _refuse(text: str, *, abort: bool) -> None:
    assert "Are you sure you want to remove ACLs (principal=User:a" in text
    assert abort
    raise KeyboardInterrupt


def test_a_refusal_is_one_line(cluster: FakeAcls, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.refusal = 54
    assert acls("--add", "--allow-principal", "User:a", "--topic", "t") == 1
    error = capsys.readouterr().err
    assert "SECURITY_DISABLED" in error
    assert "not so" in error


def test_the_command_knows_what_the_broker_takes() -> None:
    assert {int(kind): set(map(int, known)) for kind, known in SUPPORTED.items()} == {
        int(kind): set(map(int, known)) for kind, known in SUPPORTED_OPERATIONS.items()
    }
