"""ssl.principal.mapping.rules: who a certificate's holder is (KIP-371)."""

import pytest

from quorate.broker.security.principal import KafkaPrincipal, PrincipalMapping
from quorate.common.configuration import ConfigError
from tests.support.certificates import self_signed

KEY = "ssl.principal.mapping.rules"
KIP_371 = (
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,"
    "DEFAULT"
)


def user(rules: str, name: str) -> str | None:
    principal = PrincipalMapping(KEY, rules).principal_named(name)
    return None if principal is None else principal.name


@pytest.mark.parametrize(
    ("name", "mapped"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE"),
        ("OU=JavaSoft,O=Sun", "OU=JavaSoft,O=Sun"),
    ],
)
def test_the_examples_of_the_kip(name: str, mapped: str) -> None:
    assert user(KIP_371, name) == mapped


def test_by_default_a_user_has_its_distinguished_name() -> None:
    for rules in ("DEFAULT", "", " DEFAULT "):
        assert user(rules, "CN=alice,O=x") == "CN=alice,O=x"


def test_where_no_rule_fits_nobody_is_meant() -> None:
    assert user("RULE:^CN=admin$/admin/", "CN=administrator") is None


@pytest.mark.parametrize(
    ("rule", "mapped"),
    [
        (r"RULE:CN=(\w+).*/$1\/x/", r"alice\/x"),
        (r"RULE:CN=(\w+),O=a\/b/$1/", "alice"),
        (r"RULE:CN=(\w+).*/$1$1/", "alicealice"),
        (r"RULE:.*/\\1/", r"\\1"),
    ],
)
def test_slashes_and_back_references(rule: str, mapped: str) -> None:
    assert user(rule, "CN=alice,O=a/b") == mapped


@pytest.mark.parametrize(
    "rules",
    [
        "RULE",
        "RULE:",
        "RULE:a",
        "RULE:a/b",
        "RULE:a/b/X",
        "RULE:a/b/LU",
        "DEFAULTRULE:a/b/",
        "default",
        "DEFAULT RULE:a/b/",
        "RULE:(/b/",
        "RULE:a/$1/",
        "RULE:(a)/$2/",
        ",DEFAULT,nonsense",
    ],
)
def test_malformed_rules_are_refused_and_quoted(rules: str) -> None:
    with pytest.raises(ConfigError, match=KEY):
        PrincipalMapping(KEY, rules)


def test_the_name_is_as_java_writes_it() -> None:
    mapping = PrincipalMapping(KEY, "DEFAULT")
    certificate = self_signed("alice, the first", "Example")
    assert mapping.principal_of(certificate) == KafkaPrincipal(r"CN=alice\, the first,O=Example")
