"""Who may log in: users with SCRAM credentials, and delegation tokens."""

from collections.abc import Callable, Sequence
from typing import Protocol

from broker.security.passwords import verify_password
from broker.security.principal import RESERVED_NAMES, KafkaPrincipal
from broker.security.scram import MECHANISMS, Keys, ScramLogin, nobody
from metadata_log.image import Image, ScramKey


class FoundToken(Protocol):
    """A delegation token that may log in; ``token_login.TokenLogin``."""

    @property
    def principal(self) -> KafkaPrincipal: ...
    @property
    def expiry_ms(self) -> int: ...
    @property
    def salt(self) -> bytes: ...
    @property
    def iterations(self) -> int: ...
    @property
    def secrets(self) -> Sequence[Keys]: ...


FindToken = Callable[[str, str, int], FoundToken | None]
"""(token id, mechanism, wall clock in ms) → the token; None: unknown, expired, or switched off."""


def no_tokens(_token_id: str, _mechanism: str, _now_ms: int) -> FoundToken | None:
    return None


class Logins:
    """Looked up in the newest image: what the controller changes holds for the next exchange."""

    def __init__(
        self,
        image: Callable[[], Image],
        *,
        pepper: bytes,
        wall_clock_ms: Callable[[], int],
        find_token: FindToken = no_tokens,
    ) -> None:
        """``pepper``: random bytes, a secret of this process."""
        self._image = image
        self._pepper = pepper
        self._wall_clock_ms = wall_clock_ms
        self._find_token = find_token

    def now_ms(self) -> int:
        """The clock that ``expiry_ms`` is by."""
        return self._wall_clock_ms()

    def scram(self, user: str, mechanism: str, as_token: bool) -> ScramLogin:
        """As ``scram.FindLogin``."""
        if as_token:
            token = self._find_token(user, mechanism, self.now_ms())
            if token is not None:
                return ScramLogin(
                    token.principal, token.salt, token.iterations, token.secrets, token.expiry_ms
                )
            return nobody(MECHANISMS[mechanism], user, self._pepper)
        stored = self._image().scram.get(ScramKey(user, MECHANISMS[mechanism].number))
        if stored is None or user in RESERVED_NAMES:
            return nobody(MECHANISMS[mechanism], user, self._pepper)
        return ScramLogin(KafkaPrincipal(user), stored.salt, stored.iterations, (stored,))

    def password(self, user: str, password: str) -> KafkaPrincipal | None:
        """As ``passwords.CheckPassword``."""
        principal = verify_password(self._image(), user, password)
        return None if user in RESERVED_NAMES else principal
