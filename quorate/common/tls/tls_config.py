"""The configuration keys of transport security, with Kafka's names, and their checks."""

import ipaddress
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from quorate.common.configuration import (
    ConfigError,
    ConfigKey,
    ConfigSpec,
    Configuration,
    read_toml,
)
from quorate.common.tls.identity import Role, Security
from quorate.common.tls.keystore import load_security, require_node
from quorate.common.types import Endpoint

SSL: Final = "SSL"
PLAINTEXT: Final = "PLAINTEXT"


class SecurityKeys(msgspec.Struct, frozen=True):
    """The three keys of one kind of process."""

    protocol: ConfigKey[str]
    keystore: ConfigKey[str]
    truststore: ConfigKey[str]

    def __iter__(self) -> Iterator[ConfigKey[str]]:
        return iter((self.protocol, self.keystore, self.truststore))


def security_keys(prefix: str) -> SecurityKeys:
    return SecurityKeys(
        ConfigKey(
            name=f"{prefix}security.protocol",
            type=str,
            default=SSL,
            one_of=(SSL, PLAINTEXT),
            doc="SSL: mutual TLS. PLAINTEXT: no protection at all; where all is on loopback.",
        ),
        ConfigKey(
            name=f"{prefix}ssl.keystore.location",
            type=str,
            default="",
            doc="PEM file: this process's private key and certificate chain (SSL).",
        ),
        ConfigKey(
            name=f"{prefix}ssl.truststore.location",
            type=str,
            default="",
            doc="PEM file: certificate of the authority that signed everybody's (SSL).",
        ),
    )


VOTER_SECURITY: Final = security_keys("")
BROKER_SECURITY: Final = security_keys("quorum.")
"""The keys of a broker's connections to the quorum. Its own listeners have others."""

COMMAND_SPEC: Final = ConfigSpec("command", VOTER_SECURITY)


def check_security(
    keys: SecurityKeys, values: Configuration, address_key: str, endpoints: Iterable[Endpoint]
) -> None:
    """Check what the values alone can tell. ``configured_security`` reads the files.

    Raises:
        ConfigError: plain text that would leave the machine, or TLS without its files.
    """
    if values[keys.protocol] == PLAINTEXT:
        require_loopback(keys, address_key, endpoints)
        return
    for key in (keys.keystore, keys.truststore):
        if not values[key]:
            raise ConfigError(
                f"{key.name} is missing, and {keys.protocol.name}={SSL} needs it: make "
                f"certificates with `quorate certs`, or set {keys.protocol.name}={PLAINTEXT} "
                "where all is on loopback"
            )


def require_loopback(keys: SecurityKeys, address_key: str, endpoints: Iterable[Endpoint]) -> None:
    """Refuse plain text on addresses that are not on this machine.

    Raises:
        ConfigError: one of the endpoints is not on loopback; names it.
    """
    for endpoint in endpoints:
        if not is_loopback(endpoint.host):
            raise ConfigError(
                f"{keys.protocol.name}={PLAINTEXT} is for loopback addresses only, and "
                f"{address_key} names {endpoint.host}: use {SSL}, with certificates as "
                "`quorate certs` makes them"
            )


def is_loopback(host: str) -> bool:
    """Return whether ``host`` is ``localhost`` or a loopback address. Other names are
    not resolved.
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def configured_security(
    keys: SecurityKeys, values: Configuration, role: Role, node_id: int
) -> Security | None:
    """Return the certificates of the node with that id, read and checked, or None for plain text.

    Raises:
        SecurityError: they cannot be used; names key, file, and what to do.
    """
    security = _load(keys, values, role)
    if security is not None:
        require_node(security, keys.keystore.name, role, node_id)
    return security


def command_security(path: Path) -> Security | None:
    """Return the administrator's certificates that ``--command-config`` names, or None for plain
    text.

    The file is TOML, or has Kafka's ``key=value`` lines; its keys are those of a voter.

    Raises:
        ConfigError: the file or the certificates cannot be used.
    """
    values = COMMAND_SPEC.parse(command_values(path))
    check_security(VOTER_SECURITY, values, str(path), ())
    return _load(VOTER_SECURITY, values, Role.ADMIN)


def _load(keys: SecurityKeys, values: Configuration, role: Role) -> Security | None:
    if values[keys.protocol] == PLAINTEXT:
        return None
    return load_security(
        keys.keystore.name,
        Path(values[keys.keystore]),
        keys.truststore.name,
        Path(values[keys.truststore]),
        role,
    )


def command_values(path: Path) -> dict[str, object]:
    """Return the unchecked values of the file that ``--command-config`` names: TOML, or Kafka's
    ``key=value`` lines.

    Raises:
        ConfigError: it cannot be read.
    """
    if path.suffix == ".toml":
        return read_toml(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read command configuration {path}: {error}") from error
    values: dict[str, object] = {}
    for number, line in enumerate(lines, 1):
        key, equals, value = line.partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not equals:
            raise ConfigError(f"{path}, line {number}: must be key=value")
        values[key.strip()] = value.strip()
    return values
