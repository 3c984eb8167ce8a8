"""Who the holder of a certificate is: ssl.principal.mapping.rules, read as in KIP-371."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from cryptography import x509

from broker.security.principal import KafkaPrincipal
from metadata_log.configuration import ConfigError

_DEFAULT: Final = "DEFAULT"
_RULE: Final = re.compile(
    r"RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)",
    re.DOTALL,
)
_GROUP: Final = re.compile(r"\$(\d)")


class _Rule(NamedTuple):
    """None as ``pattern``: DEFAULT."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def applied(self, name: str) -> str | None:
        """The user's name; None: the rule is not for that one."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        mapped = self.pattern.sub(self.replacement, name, count=1)
        return {"L": mapped.lower(), "U": mapped.upper()}.get(self.case, mapped)


class PrincipalMapping:
    """The rules in force."""

    def __init__(self, key: str, rules: str) -> None:
        """``key``: the configuration key, for messages.

        Raises:
            ConfigError: a rule is malformed; quotes it.
        """
        self._rules = list(_parsed(key, rules or _DEFAULT))

    def principal_of(self, certificate_der: bytes) -> KafkaPrincipal | None:
        """The holder of a verified certificate; None: no rule is for it."""
        subject = x509.load_der_x509_certificate(certificate_der).subject
        return self.principal_named(subject.rfc4514_string())

    def principal_named(self, distinguished_name: str) -> KafkaPrincipal | None:
        """As ``principal_of``, by the name of its subject: ``CN=alice,O=Example``."""
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
