"""Bearer tokens of an identity provider: JSON Web Tokens, as Kafka's broker validates them
(KIP-768).

A token must be signed with a key of the provider. Tokens without a signature are never accepted.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from quorate.broker.config.oauth import (
    SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS,
    SASL_OAUTHBEARER_EXPECTED_AUDIENCE,
    SASL_OAUTHBEARER_EXPECTED_ISSUER,
    SASL_OAUTHBEARER_SCOPE_CLAIM_NAME,
    SASL_OAUTHBEARER_SUB_CLAIM_NAME,
)
from quorate.broker.security.principal import RESERVED_NAMES, KafkaPrincipal
from quorate.broker.security.signing_keys import SigningKey
from quorate.common.configuration import Values, list_items

NAME_LENGTH_MAX: Final = 1_024
_TIME_MAX_S: Final = 253_402_300_799
"""The end of the year 9999."""

FindKey = Callable[[str | None], SigningKey | None]


class InvalidToken(Exception):
    """A token is refused. The message is for the broker's log alone, and never quotes the token."""


class BearerToken(NamedTuple):
    """A token that was found valid."""

    principal: KafkaPrincipal
    expiry_ms: int
    """When the token expires, on the wall clock."""


class BearerTokenValidator:
    """Validates tokens. It computes for a tenth of a millisecond, so it runs on a thread."""

    def __init__(
        self,
        find_key: FindKey,
        wall_clock_ms: Callable[[], int],
        *,
        audiences: tuple[str, ...] = (),
        issuer: str = "",
        scope_claim: str = "scope",
        name_claim: str = "sub",
        clock_skew_s: int = 30,
    ) -> None:
        """``audiences`` and ``issuer`` are not checked if they are empty."""
        self._find_key = find_key
        self._wall_clock_ms = wall_clock_ms
        self._audiences = audiences
        self._issuer = issuer
        self._scope_claim = scope_claim
        self._name_claim = name_claim
        self._clock_skew_s = clock_skew_s

    @classmethod
    def of(
        cls, config: Values, find_key: FindKey, wall_clock_ms: Callable[[], int]
    ) -> "BearerTokenValidator":
        return cls(
            find_key,
            wall_clock_ms,
            audiences=tuple(list_items(config[SASL_OAUTHBEARER_EXPECTED_AUDIENCE])),
            issuer=config[SASL_OAUTHBEARER_EXPECTED_ISSUER],
            scope_claim=config[SASL_OAUTHBEARER_SCOPE_CLAIM_NAME].strip(),
            name_claim=config[SASL_OAUTHBEARER_SUB_CLAIM_NAME].strip(),
            clock_skew_s=config[SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS],
        )

    def validate(self, token: str) -> BearerToken:
        """Return whose token it is.

        Raises:
            InvalidToken: it is not valid here and now.
        """
        claims = self._verified(token)
        expires_s = self._check_times(claims)
        self._check_scopes(claims.get(self._scope_claim))
        name = claims.get(self._name_claim)
        if not isinstance(name, str) or not name.strip():
            raise InvalidToken(f"its claim {self._name_claim} has no name of a user")
        name = name.strip()
        if name in RESERVED_NAMES or len(name) > NAME_LENGTH_MAX:
            raise InvalidToken(f"{name[:80]!r} is nobody's name")
        return BearerToken(KafkaPrincipal(name), int(expires_s * 1_000))

    def _verified(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a token whose signature, audience and issuer are right."""
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            algorithm, key = self._key_of(header)
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._audiences or None,
                issuer=self._issuer or None,
                options={
                    # The times are checked by the clock of the broker.
                    "verify_exp": False,
                    "verify_iat": False,
                    "verify_nbf": False,
                    "verify_aud": bool(self._audiences),
                    "verify_iss": bool(self._issuer),
                    "verify_sub": False,
                    "verify_jti": False,
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise InvalidToken(f"{error}" or type(error).__name__) from None
        return claims

    def _key_of(self, header: Mapping[str, Any]) -> tuple[str, Any]:
        algorithm, key_id = header.get("alg"), header.get("kid")
        if "crit" in header:
            raise InvalidToken("its header has critical extensions, which are not understood")
        if key_id is not None and not isinstance(key_id, str):
            raise InvalidToken("its key id is no text")
        found = self._find_key(key_id)
        if found is None:
            named = "it names no key" if key_id is None else f"its key {key_id[:80]!r} is unknown"
            raise InvalidToken(f"{named}: are the keys of its issuer configured?")
        if algorithm not in found.algorithms:
            raise InvalidToken(
                f"its algorithm {str(algorithm)[:20]!r} is not one of its key: "
                f"{', '.join(sorted(found.algorithms))}"
            )
        return str(algorithm), found.key

    def _check_times(self, claims: Mapping[str, Any]) -> float:
        """Return when the token expires, in seconds since the epoch."""
        now_s = self._wall_clock_ms() / 1_000
        expires_s, issued_s = _time(claims, "exp"), _time(claims, "iat")
        begins_s = _time(claims, "nbf") if "nbf" in claims else issued_s
        if now_s - self._clock_skew_s >= expires_s:
            raise InvalidToken(f"it expired {now_s - expires_s:.0f} s ago")
        if max(begins_s, issued_s) > now_s + self._clock_skew_s:
            raise InvalidToken("it is not valid yet: do the clocks differ?")
        return expires_s

    def _check_scopes(self, scopes: object) -> None:
        listed = [scopes] if isinstance(scopes, str) else [] if scopes is None else scopes
        if not isinstance(listed, list) or not all(
            isinstance(one, str) and one.strip() for one in listed
        ):
            raise InvalidToken(f"its claim {self._scope_claim} is neither a text nor texts")


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not 0 <= value <= _TIME_MAX_S
    ):
        raise InvalidToken(f"its claim {name} is no time")
    return value
