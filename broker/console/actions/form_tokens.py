"""Tokens that forms carry, so that no other site can have a person's browser send one (CSRF).

A token is bound to the person and to this process, and is good for some hours. Another site can
neither read nor guess it.
"""

import hashlib
import hmac
from collections.abc import Callable
from typing import Final

GOOD_FOR_S: Final = 12 * 3_600
_DIGITS_MAX: Final = 12


class FormTokens:
    """Makes and checks tokens."""

    def __init__(self, key: bytes, clock_s: Callable[[], float]) -> None:
        """``key`` is random, and nobody else knows it."""
        self._key = key
        self._clock_s = clock_s

    def make(self, person: str) -> str:
        """Return a token for the forms of one person."""
        return self._signed(person, int(self._clock_s()))

    def is_good(self, person: str, token: str) -> bool:
        """Return whether this process made the token for that person, and not long ago."""
        begun, _, _ = token.partition(".")
        if not (begun.isascii() and begun.isdecimal() and len(begun) <= _DIGITS_MAX):
            return False
        age_s = self._clock_s() - int(begun)
        expected = self._signed(person, int(begun))
        is_ours = hmac.compare_digest(expected.encode(), token.encode())
        return is_ours and age_s < GOOD_FOR_S

    def _signed(self, person: str, begun_s: int) -> str:
        said = f"{begun_s}.{person}".encode()
        return f"{begun_s}.{hmac.new(self._key, said, hashlib.sha256).hexdigest()}"
