"""SASL OAUTHBEARER (RFC 7628), without channel binding.

The client sends its token in one message. If the token is refused, the broker answers with a
document in JSON, the client acknowledges it with one byte, and then authentication fails.
"""

import re
from typing import Final, Protocol

from quorate.broker.security.bearer_tokens import BearerToken, InvalidToken
from quorate.broker.security.sasl_exchange import (
    AuthenticatedClient,
    Challenge,
    DeferredVerification,
    SaslAuthenticationFailed,
    SaslStep,
)

OAUTHBEARER: Final = "OAUTHBEARER"

INVALID_TOKEN: Final = b'{"status":"invalid_token"}'

_MESSAGE: Final = re.compile(
    r"n,(?:a=(?P<acts_for>[^,]*))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x20-\x7e\t\r\n]*\x01)*)\x01"
)
_BEARER: Final = re.compile(r"bearer +(?P<token>[-A-Za-z0-9._~+/]+=*)", re.IGNORECASE)


class ValidatesTokens(Protocol):
    """Validates tokens; ``bearer_tokens.BearerTokenValidator`` implements it."""

    def validate(self, token: str) -> BearerToken:
        """Return whose token it is, or raise ``InvalidToken``."""


class OAuthBearerSaslServer:
    """The server's side of one exchange."""

    def __init__(self, tokens: ValidatesTokens) -> None:
        self._tokens = tokens
        self._refused: str | None = None
        """Why the token was refused."""

    def step(self, message: bytes) -> SaslStep:
        """Handle the client's next message, as ``SaslExchange.step`` describes."""
        if self._refused is not None:
            raise SaslAuthenticationFailed(self._refused)
        token, acts_for = _parsed(message)

        def verify() -> AuthenticatedClient | Challenge:
            try:
                valid = self._tokens.validate(token)
            except InvalidToken as error:
                self._refused = f"the token is refused: {error}"
                return Challenge(INVALID_TOKEN)
            if acts_for not in ("", valid.principal.name):
                raise SaslAuthenticationFailed("acting for another user is not supported")
            return AuthenticatedClient(b"", valid.principal, valid.expiry_ms)

        return DeferredVerification("", verify)


def _parsed(message: bytes) -> tuple[str, str]:
    """Return the token, and the name of the user that the client wants to act for, if any."""
    try:
        found = _MESSAGE.fullmatch(message.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise SaslAuthenticationFailed("the OAUTHBEARER message is malformed")
    pairs = (pair.partition("=") for pair in found["pairs"].split("\x01") if pair)
    fields = {key: value for key, _, value in pairs}
    bearer = _BEARER.fullmatch(fields.get("auth", ""))
    if bearer is None:
        raise SaslAuthenticationFailed("the OAUTHBEARER message has no bearer token")
    acts_for = (found["acts_for"] or "").replace("=2C", ",").replace("=3D", "=")
    return bearer["token"], acts_for
