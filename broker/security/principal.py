"""Principals: the identity that a client has proved, and how a TLS certificate is mapped to one.

The names in certificates are mapped by ssl.principal.mapping.rules, as in KIP-371.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from cryptography import x509

from quorate.common.configuration import ConfigError

USER_TYPE: Final = "User"
"""The only type of principal that Kafka itself creates."""


class KafkaPrincipal(NamedTuple):
    """The identity of a client in Kafka's form: ``User:alice``."""

    name: str
    type: str = USER_TYPE
    token_authenticated: bool = False
    """True if the client authenticated by a delegation token. Such a client cannot create another
    token (KIP-48).
    """

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


CLUSTER_ADMIN: Final = KafkaPrincipal("quorate-cluster-admin", "Broker")
"""The principal on whose behalf brokers create topics. The quota of this user applies to them
(Q13).

It has its own principal type, so no client can have this principal, whatever its name is.
"""

ANONYMOUS: Final = KafkaPrincipal("ANONYMOUS")
"""Kafka's principal of a client that did not authenticate."""


RESERVED_NAMES: Final = frozenset({ANONYMOUS.name, "quorate-cluster-admin"})
"""The names that nobody may authenticate as, by a password, a certificate or a token. The second
one belongs to the cluster itself, which creates internal topics.
"""


def parse_principal(text: str) -> KafkaPrincipal:
    """Parse a text such as ``User:alice``. A name may contain colons. A text without a colon is a
    type with an empty name.
    """
    kind, _, name = text.partition(":")
    return KafkaPrincipal(name, kind)


_DEFAULT: Final = "DEFAULT"
_RULE: Final = re.compile(
    r"RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)",
    re.DOTALL,
)
_GROUP: Final = re.compile(r"\$(\d)")


class _Rule(NamedTuple):
    """One mapping rule. The rule DEFAULT has no ``pattern``."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def applied(self, name: str) -> str | None:
        """Return the name of the user, or None if the rule does not match."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        mapped = self.pattern.sub(self.replacement, name, count=1)
        return {"L": mapped.lower(), "U": mapped.upper()}.get(self.case, mapped)


class PrincipalMapping:
    """The mapping rules in force, in their order."""

    def __init__(self, key: str, rules: str) -> None:
        """``key`` is the configuration key, for error messages.

        Raises:
            ConfigError: a rule is malformed. The message quotes the rule.
        """
        self._rules = list(_parsed(key, rules or _DEFAULT))

    def principal_of(self, certificate_der: bytes) -> KafkaPrincipal | None:
        """Return the principal of a verified certificate, or None if no rule matches it."""
        subject = x509.load_der_x509_certificate(certificate_der).subject
        return self.principal_named(subject.rfc4514_string())

    def principal_named(self, distinguished_name: str) -> KafkaPrincipal | None:
        """Return the principal of a subject, such as ``CN=alice,O=Example``, or None if no rule
        matches it."""
        for rule in self._rules:
            user = rule.applied(distinguished_name)
            if user is not None:
                return KafkaPrincipal(user)
        return None


def _parsed(key: str, rules: str) -> Iterator[_Rule]:
    rest = rules.strip()
    while rest:
        if rest.startswith(_DEFAULT):
            yield _Rule()
            rest = rest.removeprefix(_DEFAULT)
        else:
            found = _RULE.match(rest)
            if found is None:
                raise ConfigError(
                    f"{key}: {rest!r} must be DEFAULT or RULE:pattern/replacement/ with L, U or "
                    "nothing after it"
                )
            yield _rule(key, found)
            rest = rest[found.end() :]
        rest = rest.strip()
        if rest and not rest.startswith(","):
            raise ConfigError(f"{key}: a comma is missing before {rest!r}")
        rest = rest.removeprefix(",").strip()


def _rule(key: str, found: re.Match[str]) -> _Rule:
    replacement = _GROUP.sub(r"\\g<\1>", found["replacement"].replace("\\", r"\\"))
    try:
        pattern = re.compile(found["pattern"])
        groups = {int(one) for one in _GROUP.findall(found["replacement"])}
    except re.error as error:
        raise ConfigError(f"{key}: the pattern of {found[0]!r} is malformed: {error}") from error
    if groups and max(groups) > pattern.groups:
        raise ConfigError(f"{key}: {found[0]!r} has no group ${max(groups)} in its pattern")
    return _Rule(pattern, replacement, found["case"])
