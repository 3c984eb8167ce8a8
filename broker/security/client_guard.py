"""Authentication of the clients of the gRPC listener, before any service receives their requests.

A client authenticates by its certificate or by its password. It cannot claim an identity in a
request, because the context of the request is overwritten with the identity that the certificate or
password proves (F5). Methods that are only for brokers are refused.
"""

import base64
import binascii
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from typing import Any, Final

import grpc
from cryptography import x509

from quorate.broker.config.grpc_listeners import GRPC_SECURITY_PROTOCOL, SASL_SSL
from quorate.broker.config.security import SSL_PRINCIPAL_MAPPING_RULES
from quorate.broker.security.client_fields import clear_what_clients_may_not_say
from quorate.broker.security.grpc_caller import Caller, set_caller
from quorate.broker.security.login_queue import LoginQueue, TooManyLogins
from quorate.broker.security.peer_guard import ALLOCATE_PRODUCER_IDS
from quorate.broker.security.plain_passwords import Passwords
from quorate.broker.security.principal import ANONYMOUS, KafkaPrincipal, PrincipalMapping
from quorate.common.configuration import Configuration
from quorate.common.grpc_support.checked_calls import CheckedCalls, Context
from quorate.common.grpc_support.refusal_log import RefusalLog, peer_host
from quorate_proto.v1 import admin_pb2

AUTHORIZATION: Final = "authorization"
_BASIC: Final = "Basic "

Authenticate = Callable[[Context], Awaitable[KafkaPrincipal]]
"""Returns the principal of the client of a gRPC call. It raises Unauthenticated if there is none.
"""


class Unauthenticated(Exception):
    """A client did not prove its identity. The message says what was missing, and never contains
    what the client sent.
    """


class VerifiedPasswords:
    """Verifies the passwords that clients send with every call. A password that was right before
    costs no hashing; the others wait for threads that only this listener uses.
    """

    def __init__(self, passwords: Passwords, logins: LoginQueue | None = None) -> None:
        self._passwords = passwords
        self._logins = logins or LoginQueue()

    async def principal(self, user: str, password: str, host: str) -> KafkaPrincipal | None:
        """Return the principal, or None if the user does not exist or the password is wrong.

        Raises:
            TooManyLogins: too many clients of that address or of all addresses wait.
        """
        found = self._passwords.find(user, password)
        if found is not None:
            return found
        return await self._logins.run(host, user, self._passwords.verification(user, password))


def authenticator(config: Configuration, passwords: VerifiedPasswords) -> Authenticate:
    """Return the function that authenticates clients of ``grpc.listener``, by its security
    protocol.

    Raises:
        ConfigError: a mapping rule for the names in certificates is malformed.
    """
    if config[GRPC_SECURITY_PROTOCOL] == SASL_SSL:
        return partial(_by_password, passwords=passwords)
    key = SSL_PRINCIPAL_MAPPING_RULES
    return partial(_by_certificate, mapping=PrincipalMapping(key.name, config[key]))


async def _by_password(context: Context, passwords: VerifiedPasswords) -> KafkaPrincipal:
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
    host = peer_host(context.peer())
    found = await passwords.principal(user, password, host) if colon else None
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
    """Return the subject of the certificate in Kafka's form (RFC 2253): ``CN=alice,O=Example``."""
    return x509.load_pem_x509_certificate(pem).subject.rfc4514_string()


BROKERS_ONLY: Final = frozenset({ALLOCATE_PRODUCER_IDS})
"""The methods that are only for brokers, of services that clients and brokers share."""

NOT_FORWARDED: Final = -1


class ClientGuard(CheckedCalls):
    """Authenticates the client of each call. It stores the client in the context of the request,
    and as the result of ``caller()`` for this task.
    """

    def __init__(self, authenticate: Authenticate, refusals: RefusalLog) -> None:
        """``authenticate`` is a result of ``authenticator``."""
        self._authenticate = authenticate
        self._refusals = refusals

    async def check(self, method: str, request: Any, context: Context) -> None:  # noqa: ANN401 - any message
        host = peer_host(context.peer())
        if method in BROKERS_ONLY:
            name = method.rpartition("/")[2]
            self._refusals.refused(host, f"{name} is for brokers")
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"{name} is for brokers")
        try:
            principal = await self._authenticate(context)
        except Unauthenticated as error:
            self._refusals.refused(host, str(error))
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        except TooManyLogins as error:
            self._refusals.refused(host, str(error))
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{error}: try again later")
        set_caller(Caller(principal, host))
        stamp(request, principal, host)


def stamp(request: Any, principal: KafkaPrincipal, host: str) -> None:  # noqa: ANN401 - any message
    """Put the identity that the client has proved into the context of the request.

    Of what the client sent, only what a client may say is kept: of the context its client id and
    its timeout. So a client speaks for nobody else, deposes no controller by an epoch that only
    brokers know (E3, F5), and never counts as an old client that may exceed its quota. Such clients
    are muted instead, and no client is muted over gRPC (Q14).
    """
    descriptor = getattr(request, "DESCRIPTOR", None)
    if descriptor is None:
        return  # A stream, whose messages have no field of brokers: a test looks at that.
    clear_what_clients_may_not_say(request)
    if "context" in descriptor.fields_by_name:
        request.context.MergeFrom(
            admin_pb2.RequestContext(
                principal_name=str(principal),
                token_authenticated=principal.token_authenticated,
                client_host=host,
                forwarded_by=NOT_FORWARDED,
            )
        )
