"""Authentication of HTTP clients: by user and password, by a bearer token, or by a certificate.

Users, passwords and tokens are those of the Kafka listeners, and failed logins are slowed in the
same way. Neither an answer nor its time shows whether a user exists.
"""

import asyncio
import base64
import binascii
from functools import lru_cache
from typing import Final

from aiohttp import hdrs, web

from quorate.broker.config.http_listeners import BASIC, BEARER
from quorate.broker.security.bearer_tokens import InvalidToken
from quorate.broker.security.client_guard import Unauthenticated, VerifiedPasswords
from quorate.broker.security.credential_provider import CredentialProvider
from quorate.broker.security.failed_logins import FailedLogins
from quorate.broker.security.listener_security import ListenerSecurity, UnmappedCertificate
from quorate.broker.security.login_queue import LoginQueue, TooManyLogins
from quorate.broker.security.principal import ANONYMOUS, KafkaPrincipal

CERTIFICATES_CACHED: Final = 256
_CHALLENGES: Final = {
    BASIC: 'Basic realm="quorate", charset="UTF-8"',
    BEARER: 'Bearer realm="quorate"',
}


class HttpAuthentication:
    """Authenticates the clients of one listener."""

    def __init__(
        self,
        methods: frozenset[str],
        security: ListenerSecurity,
        credentials: CredentialProvider,
        *,
        failure_delay_ms: int,
    ) -> None:
        """``methods`` are some of BASIC and BEARER; without them a client is who its certificate
        says, as ``security`` maps it. ``failure_delay_ms`` is
        connection.failed.authentication.delay.ms.
        """
        self.logins = LoginQueue()
        self._methods = methods
        self._credentials = credentials
        self._passwords = VerifiedPasswords(credentials.passwords, self.logins)
        self._certified = lru_cache(CERTIFICATES_CACHED)(security.principal_of_certificate)
        self._failures = FailedLogins()
        self._failure_delay_ms = failure_delay_ms

    @property
    def challenges(self) -> tuple[str, ...]:
        """What a client that is not authenticated is told to authenticate by (RFC 9110)."""
        return tuple(_CHALLENGES[method] for method in sorted(self._methods))

    async def principal_of(self, request: web.Request, host: str) -> KafkaPrincipal:
        """Return the client of a request.

        Raises:
            Unauthenticated: the client did not prove who it is. Its answer was delayed.
            TooManyLogins: so many clients log in that this one is turned away.
        """
        began_s = asyncio.get_running_loop().time()
        try:
            return await self._proved(request, host)
        except (Unauthenticated, TooManyLogins):
            if hdrs.AUTHORIZATION in request.headers:
                await self._failures.delay(host, began_s, self._failure_delay_ms)
            raise

    async def _proved(self, request: web.Request, host: str) -> KafkaPrincipal:
        said = request.headers.get(hdrs.AUTHORIZATION)
        if not self._methods or said is None:
            return self._by_certificate(request)
        scheme, _, secret = said.partition(" ")
        method = scheme.upper()
        if method not in self._methods:
            raise Unauthenticated(f"authenticate by {' or '.join(sorted(self._methods))}")
        if method == BASIC:
            return await self._by_password(secret.strip(), host)
        return await self._by_token(secret.strip(), host)

    def _by_certificate(self, request: web.Request) -> KafkaPrincipal:
        transport = request.transport
        tls = None if transport is None else transport.get_extra_info("ssl_object")
        certificate = None if tls is None else tls.getpeercert(binary_form=True)
        if certificate:
            try:
                principal = self._certified(certificate)
            except UnmappedCertificate as error:
                raise Unauthenticated(str(error)) from error
            if principal != ANONYMOUS:
                return principal
        if self._methods:
            raise Unauthenticated(f"authenticate by {' or '.join(sorted(self._methods))}")
        return ANONYMOUS

    async def _by_password(self, encoded: str, host: str) -> KafkaPrincipal:
        try:
            user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            raise Unauthenticated("the authorization header is malformed") from None
        found = await self._passwords.principal(user, password, host) if colon else None
        if found is None:
            raise Unauthenticated("user or password is wrong")
        return found

    async def _by_token(self, token: str, host: str) -> KafkaPrincipal:
        tokens = self._credentials.bearer_tokens
        assert tokens is not None, "configurations without keys are refused"
        try:
            valid = await self.logins.run(host, "", lambda: tokens.validate(token))
        except InvalidToken as error:
            raise Unauthenticated(f"the token is refused: {error}") from None
        return valid.principal
