"""From a gRPC connection and its metadata to a Kafka principal."""

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from typing import Final

from cryptography import x509

from broker.security.config import SSL_PRINCIPAL_MAPPING_RULES
from broker.security.grpc_config import GRPC_SECURITY_PROTOCOL, SASL_SSL
from broker.security.passwords import HASHING, CheckPassword
from broker.security.principal import ANONYMOUS, KafkaPrincipal
from broker.security.principal_mapping import PrincipalMapping
from metadata_log.configuration import Configuration
from quorum.checked_calls import Context

AUTHORIZATION: Final = "authorization"
_BASIC: Final = "Basic "
REMEMBERED_MAX: Final = 1_000

Authenticate = Callable[[Context], Awaitable[KafkaPrincipal]]
"""Who makes the call. Raises Unauthenticated."""


class Unauthenticated(Exception):
    """A client did not show who it is; the message says what was missing, never what was sent."""


class Passwords:
    """Verified passwords, so that not every call costs thousands of hashes.

    What was verified counts as long as ``version()`` stays what it was: it changes with any user.
    Passwords are remembered as digests. Refusals are not remembered.
    """

    def __init__(self, verify: CheckPassword, version: Callable[[], object]) -> None:
        """``verify`` takes its time, and is called in a thread."""
        self._verify = verify
        self._version = version
        self._of: object = None
        self._known: dict[tuple[str, bytes], KafkaPrincipal] = {}

    async def principal(self, user: str, password: str) -> KafkaPrincipal | None:
        """Who that is; None: not a pair of this cluster."""
        version = self._version()
        if version is not self._of or len(self._known) >= REMEMBERED_MAX:
            self._known.clear()
            self._of = version
        key = (user, hashlib.sha256(password.encode()).digest())
        found = self._known.get(key)
        if found is None:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(HASHING, self._verify, user, password)
            if found is not None and version is self._version():
                self._known[key] = found
        return found


def authenticator(config: Configuration, passwords: Passwords) -> Authenticate:
    """How clients of ``grpc.listener`` are recognised, by its security protocol.

    Raises:
        ConfigError: a rule for the names in certificates is malformed.
    """
    if config[GRPC_SECURITY_PROTOCOL] == SASL_SSL:
        return partial(_by_password, passwords=passwords)
    key = SSL_PRINCIPAL_MAPPING_RULES
    return partial(_by_certificate, mapping=PrincipalMapping(key.name, config[key]))


async def _by_password(context: Context, passwords: Passwords) -> KafkaPrincipal:
    header = next(
        (value for key, value in context.invocation_metadata() if key == AUTHORIZATION), None
    )
    if not isinstance(header, str) or not header.startswith(_BASIC):
        raise Unauthenticated(
            "user and password are missing: set security.protocol=SASL_SSL, sasl.username and "
            "sasl.password"
        )
    try:
        decoded = base64.b64decode(header.removeprefix(_BASIC), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise Unauthenticated("the authorization header is malformed") from error
    user, colon, password = decoded.partition(":")
    found = await passwords.principal(user, password) if colon else None
    if found is None:
        raise Unauthenticated("user or password is wrong")
    return found


async def _by_certificate(context: Context, mapping: PrincipalMapping) -> KafkaPrincipal:
    found = context.auth_context().get("x509_pem_cert", ())
    pem = next(iter(found), None)
    if pem is None:
        return ANONYMOUS
    principal = mapping.principal_named(_distinguished_name(pem))
    if principal is None:
        raise Unauthenticated(f"its certificate fits no rule of {SSL_PRINCIPAL_MAPPING_RULES.name}")
    return principal


@lru_cache(maxsize=256)
def _distinguished_name(pem: bytes) -> str:
    """As Kafka has it (RFC 2253): ``CN=alice,O=Example``."""
    return x509.load_pem_x509_certificate(pem).subject.rfc4514_string()
