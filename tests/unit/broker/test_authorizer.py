"""Kafka's rules of authorization, one by one (F5)."""

import logging
from typing import Any

import pytest

from quorate.broker.config.authorizer import STANDARD_AUTHORIZER
from quorate.broker.config.spec import BROKER_SPEC
from quorate.broker.security.acl_rules import SUPPORTED_OPERATIONS
from quorate.broker.security.authorizer import CACHED_DECISIONS_MAX, Authorizer, AuthorizerSettings
from quorate.broker.security.principal import ANONYMOUS, CLUSTER_ADMIN, KafkaPrincipal
from quorate.common.acl_types import CLUSTER_NAME, AclOperation, ResourceType
from quorate.common.configuration import ConfigError
from quorate.metadata_log.image import Image
from tests.support.acls import Binding, acl, added, log_with, removed
from tests.support.followers import ShownImage

Op = AclOperation
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ALICE, BOB = KafkaPrincipal("alice"), KafkaPrincipal("bob")
HOST = "10.0.0.1"


def authorizer(*bindings: Binding, **settings: Any) -> Authorizer:  # noqa: ANN401 - any setting
    log = log_with(*bindings)
    return Authorizer(ShownImage(lambda: log.image), AuthorizerSettings(enabled=True, **settings))


def may(
    found: Authorizer,
    operation: Op,
    name: str = "orders",
    *,
    principal: KafkaPrincipal = ALICE,
    host: str = HOST,
    kind: ResourceType = TOPIC,
) -> bool:
    return found.allowed(principal, host, operation, kind, name)


@pytest.mark.parametrize(
    ("bindings", "allowed"),
    [
        ((), False),
        ((acl("User:alice", Op.READ, TOPIC, "orders"),), True),
        ((acl("User:bob", Op.READ, TOPIC, "orders"),), False),
        ((acl("User:alice", Op.READ, GROUP, "orders"),), False),
        ((acl("User:alice", Op.READ, TOPIC, "order"),), False),
        ((acl("User:alice", Op.WRITE, TOPIC, "orders"),), False),
        ((acl("User:alice", Op.ALL, TOPIC, "orders"),), True),
        ((acl("User:alice", Op.READ, TOPIC, "*"),), True),
        ((acl("User:*", Op.READ, TOPIC, "orders"),), True),
        ((acl("User:*", Op.ALL, TOPIC, "*"),), True),
        ((acl("User:alice", Op.READ, TOPIC, "ord", prefixed=True),), True),
        ((acl("User:alice", Op.READ, TOPIC, "orders", prefixed=True),), True),
        ((acl("User:alice", Op.READ, TOPIC, "orders2", prefixed=True),), False),
        ((acl("User:alice", Op.READ, TOPIC, "rders", prefixed=True),), False),
        ((acl("User:alice", Op.READ, TOPIC, "*", prefixed=True),), False),
        ((acl("User:alice", Op.READ, TOPIC, "orders", host=HOST),), True),
        ((acl("User:alice", Op.READ, TOPIC, "orders", host="10.0.0.2"),), False),
        ((acl("alice", Op.READ, TOPIC, "orders"),), False),
        ((acl("User:ALICE", Op.READ, TOPIC, "orders"),), False),
    ],
)
def test_what_allows_reading_a_topic(bindings: tuple[Binding, ...], allowed: bool) -> None:
    assert may(authorizer(*bindings), Op.READ) is allowed


@pytest.mark.parametrize(
    ("deny", "denied"),
    [
        (acl("User:alice", Op.READ, TOPIC, "orders", deny=True), True),
        (acl("User:alice", Op.ALL, TOPIC, "orders", deny=True), True),
        (acl("User:*", Op.READ, TOPIC, "*", deny=True), True),
        (acl("User:alice", Op.READ, TOPIC, "o", deny=True, prefixed=True), True),
        (acl("User:alice", Op.READ, TOPIC, "orders", deny=True, host=HOST), True),
        (acl("User:alice", Op.READ, TOPIC, "orders", deny=True, host="10.0.0.2"), False),
        (acl("User:bob", Op.READ, TOPIC, "orders", deny=True), False),
        (acl("User:alice", Op.WRITE, TOPIC, "orders", deny=True), False),
        (acl("User:alice", Op.DESCRIBE, TOPIC, "orders", deny=True), False),
        (acl("User:alice", Op.READ, TOPIC, "other", deny=True), False),
    ],
)
def test_a_deny_goes_over_every_allow(deny: Binding, denied: bool) -> None:
    for allow in (
        acl("User:alice", Op.READ, TOPIC, "orders"),
        acl("User:*", Op.ALL, TOPIC, "*"),
        acl("User:alice", Op.READ, TOPIC, "or", prefixed=True),
    ):
        assert may(authorizer(allow, deny), Op.READ) is not denied


@pytest.mark.parametrize("operation", list(Op))
def test_what_implies_describe_and_describe_configs(operation: Op) -> None:
    found = authorizer(acl("User:alice", operation, TOPIC, "orders"))
    implied = {Op.READ, Op.WRITE, Op.DELETE, Op.ALTER, Op.DESCRIBE, Op.ALL}
    assert may(found, Op.DESCRIBE) is (operation in implied)
    assert may(found, Op.DESCRIBE_CONFIGS) is (
        operation in {Op.ALTER_CONFIGS, Op.DESCRIBE_CONFIGS, Op.ALL}
    )
    for other in (Op.READ, Op.WRITE, Op.CREATE, Op.ALTER_CONFIGS):
        assert may(found, other) is (operation in {other, Op.ALL})


def test_a_denied_operation_does_not_deny_what_it_would_imply() -> None:
    found = authorizer(
        acl("User:alice", Op.ALL, TOPIC, "orders"),
        acl("User:alice", Op.READ, TOPIC, "orders", deny=True),
    )
    assert not may(found, Op.READ)
    assert may(found, Op.DESCRIBE)


def test_super_users_may_do_everything() -> None:
    found = authorizer(
        acl("User:*", Op.ALL, TOPIC, "*", deny=True), super_users=frozenset({"User:alice"})
    )
    assert may(found, Op.WRITE)
    assert found.allowed(ALICE, HOST, Op.WRITE, TOPIC, None)
    assert not may(found, Op.WRITE, principal=BOB)
    assert may(found, Op.CREATE, principal=CLUSTER_ADMIN), "brokers themselves"


def test_a_resource_without_entries_is_nobodys_or_everybodys() -> None:
    entry = acl("User:bob", Op.READ, TOPIC, "orders")
    assert not may(authorizer(entry), Op.READ, "other")
    open_ = authorizer(entry, allow_everyone_if_no_acl_found=True)
    assert may(open_, Op.READ, "other")
    assert not may(open_, Op.READ, "orders"), "there is an entry about it, for another"
    for over in (
        acl("User:bob", Op.READ, TOPIC, "*"),
        acl("User:bob", Op.READ, TOPIC, "oth", prefixed=True),
    ):
        assert not may(authorizer(over, allow_everyone_if_no_acl_found=True), Op.READ, "other")


def test_without_an_authorizer_everything_is_allowed() -> None:
    log = log_with(acl("User:*", Op.ALL, TOPIC, "*", deny=True))
    off = Authorizer(ShownImage(lambda: log.image), AuthorizerSettings())
    assert not off.enabled
    assert may(off, Op.WRITE, principal=ANONYMOUS)


@pytest.mark.parametrize(
    ("bindings", "allowed"),
    [
        ((), False),
        ((acl("User:alice", Op.WRITE, TOPIC, "orders"),), True),
        ((acl("User:alice", Op.WRITE, TOPIC, "o", prefixed=True),), True),
        ((acl("User:alice", Op.WRITE, TOPIC, "*"),), True),
        ((acl("User:*", Op.ALL, TOPIC, "x"),), True),
        ((acl("User:alice", Op.READ, TOPIC, "orders"),), False),
        ((acl("User:alice", Op.WRITE, GROUP, "orders"),), False),
        ((acl("User:alice", Op.WRITE, TOPIC, "orders", host="1.1.1.1"),), False),
    ],
)
def test_kip679_whether_there_may_be_a_topic_to_write(
    bindings: tuple[Binding, ...], allowed: bool
) -> None:
    assert authorizer(*bindings).allowed(ALICE, HOST, Op.WRITE, TOPIC, None) is allowed


@pytest.mark.parametrize(
    ("deny", "allow", "allowed"),
    [
        (("*", False), ("orders", False), False),
        (("*", False), ("*", False), False),
        (("o", True), ("orders", False), False),
        (("o", True), ("or", True), False),
        (("o", True), ("o", True), False),
        (("or", True), ("o", True), True),
        (("o", True), ("*", False), True),
        (("orders", False), ("orders", False), False),
        (("orders", False), ("orders", True), True),
        (("orders", False), ("*", False), True),
        (("other", False), ("orders", False), True),
    ],
)
def test_kip679_a_deny_that_covers_all_that_is_allowed(
    deny: tuple[str, bool], allow: tuple[str, bool], allowed: bool
) -> None:
    found = authorizer(
        acl("User:alice", Op.WRITE, TOPIC, deny[0], prefixed=deny[1], deny=True),
        acl("User:alice", Op.WRITE, TOPIC, allow[0], prefixed=allow[1]),
    )
    assert found.allowed(ALICE, HOST, Op.WRITE, TOPIC, None) is allowed


def test_kip679_where_topics_without_entries_are_everybodys_only_a_deny_of_all_counts() -> None:
    one = acl("User:alice", Op.WRITE, TOPIC, "orders", deny=True)
    every = acl("User:alice", Op.WRITE, TOPIC, "*", deny=True)
    for bindings, allowed in (((), True), ((one,), True), ((one, every), False)):
        found = authorizer(*bindings, allow_everyone_if_no_acl_found=True)
        assert found.allowed(ALICE, HOST, Op.WRITE, TOPIC, None) is allowed


def test_a_change_of_entries_is_obeyed_at_once() -> None:
    entry = acl("User:alice", Op.READ, TOPIC, "orders")
    log = log_with()
    found = Authorizer(ShownImage(lambda: log.image), AuthorizerSettings(enabled=True))
    for _ in range(2):
        assert not may(found, Op.READ)
        log.write_as_controller(added(entry))
        assert may(found, Op.READ)
        log.write_as_controller(removed(entry))


def test_remembered_decisions_are_bounded_and_stay_right() -> None:
    found = authorizer(acl("User:alice", Op.READ, TOPIC, "t", prefixed=True))
    for number in range(CACHED_DECISIONS_MAX + 10):
        assert may(found, Op.READ, f"t{number}")
    assert len(found._decisions) <= CACHED_DECISIONS_MAX
    assert not may(found, Op.WRITE, "t1")


class Alice:
    principal = ALICE
    client_host = HOST


def test_a_refusal_is_logged_with_who_what_and_where(caplog: pytest.LogCaptureFixture) -> None:
    rights = authorizer(acl("User:alice", Op.READ, TOPIC, "orders")).rights_of(Alice())
    with caplog.at_level(logging.INFO):
        assert rights.may_topic(Op.READ, "orders")
        assert not rights.may_topic(Op.WRITE, "seen", log_denied=False)
        assert not caplog.messages
        assert not rights.may_topic(Op.WRITE, "orders")
        assert not rights.may_cluster(Op.ALTER)
    assert caplog.messages == [
        "Principal = User:alice is Denied Operation = WRITE from host = 10.0.0.1 "
        "on resource = TOPIC:LITERAL:orders",
        "Principal = User:alice is Denied Operation = ALTER from host = 10.0.0.1 "
        f"on resource = CLUSTER:LITERAL:{CLUSTER_NAME}",
    ]


def test_kip430_operations_are_told_as_bits() -> None:
    rights = authorizer(
        acl("User:alice", Op.READ, TOPIC, "orders"),
        acl("User:alice", Op.ALL, GROUP, "g"),
    ).rights_of(Alice())
    assert rights.operations(TOPIC, "orders") == 1 << Op.READ | 1 << Op.DESCRIBE
    assert rights.operations(GROUP, "g") == sum(1 << one for one in SUPPORTED_OPERATIONS[GROUP])
    assert rights.operations(CLUSTER, CLUSTER_NAME) == 0


def test_settings_come_from_the_configuration() -> None:
    needed = {"broker.id": 1, "log.dir": "x", "quorum.bootstrap.servers": "h:1"}
    assert AuthorizerSettings.of(BROKER_SPEC.parse(needed)) == AuthorizerSettings()
    given = {
        **needed,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:CN=a,O=b; User:c;",
        "allow.everyone.if.no.acl.found": "true",
    }
    assert AuthorizerSettings.of(BROKER_SPEC.parse(given)) == AuthorizerSettings(
        True, frozenset({"User:CN=a,O=b", "User:c"}), True
    )
    with pytest.raises(ConfigError, match=r"authorizer\.class\.name=com\.example"):
        BROKER_SPEC.parse({**needed, "authorizer.class.name": "com.example.Mine"})


def test_a_name_that_somebody_made_up_costs_no_more_for_its_length() -> None:
    looked_up = []

    class Counted(dict[Any, Any]):
        def get(self, pattern: Any, default: Any = None) -> Any:  # noqa: ANN401 - as dict's
            looked_up.append(pattern)
            return super().get(pattern, default)

    acls = log_with(acl("User:alice", Op.READ, TOPIC, "xx", prefixed=True)).image.acls
    counted: Any = Counted(acls.items())
    found = Authorizer(ShownImage(lambda: Image(acls=counted)), AuthorizerSettings(enabled=True))
    assert may(found, Op.READ, "x" * 30_000)
    assert len(looked_up) == 3, "the name, any name, and the one prefix there is"
    assert not found._decisions, "who asks could fill the memory with names"


def test_denying_what_would_imply_an_operation_allows_it_nowhere() -> None:
    found = authorizer(acl("User:alice", Op.READ, TOPIC, "orders", deny=True))
    assert not found.allowed(ALICE, HOST, Op.DESCRIBE, TOPIC, None)
    found = authorizer(acl("User:alice", Op.READ, TOPIC, "orders"))
    assert found.allowed(ALICE, HOST, Op.DESCRIBE, TOPIC, None)


def test_a_name_cannot_forge_a_line_of_the_log_nor_fill_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rights = authorizer().rights_of(Alice())
    with caplog.at_level(logging.INFO):
        assert not rights.may_topic(Op.READ, "x\nPrincipal = User:bob is Allowed")
        assert not rights.may_topic(Op.READ, "y" * 30_000)
    assert all("\n" not in one and len(one) < 1_000 for one in caplog.messages)
    assert len(rights.refusal(Op.READ, TOPIC, "y" * 30_000)) < 1_000
