"""The credentials by which clients authenticate: users with SCRAM credentials, and delegation
tokens.
"""

from collections.abc import Callable

from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.security.oauth_bearer import ValidatesTokens
from quorate.broker.security.password_cache import PasswordCache
from quorate.broker.security.plain_passwords import verify_password
from quorate.broker.security.principal import RESERVED_NAMES, KafkaPrincipal
from quorate.broker.security.scram import MECHANISMS, ScramLogin
from quorate.broker.security.scram_decoys import ScramDecoys
from quorate.broker.security.token_secrets import TokenLogin, unknown_token_login
from quorate.metadata_log.image import ScramKey

FindToken = Callable[[str, str, int], TokenLogin | None]
"""Takes a token id, a mechanism and the wall clock in ms. Returns the token, or None if the token
is unknown or has expired, or if delegation tokens are disabled.
"""


def no_tokens(_token_id: str, _mechanism: str, _now_ms: int) -> TokenLogin | None:
    """Find no token, as if delegation tokens were disabled."""
    return None


class CredentialProvider:
    """Looks credentials up in the newest image, so a change by the controller applies to the next
    exchange.
    """

    def __init__(
        self,
        images: MetadataFollower,
        *,
        pepper: bytes,
        wall_clock_ms: Callable[[], int],
        find_token: FindToken = no_tokens,
        bearer_tokens: ValidatesTokens | None = None,
    ) -> None:
        """``pepper`` is random bytes, a secret of this process. ``bearer_tokens`` is None unless
        OAUTHBEARER is enabled.
        """
        self.bearer_tokens = bearer_tokens
        self._images = images
        self.decoys = ScramDecoys(images, pepper)
        """The credentials of users who do not exist."""
        self._wall_clock_ms = wall_clock_ms
        self._find_token = find_token
        self.passwords = PasswordCache(images, self.password, pepper)
        """Checks passwords in clear text, for all listeners together."""

    def now_ms(self) -> int:
        """Return the time on the clock that ``expiry_ms`` uses."""
        return self._wall_clock_ms()

    def scram(self, user: str, mechanism: str, as_token: bool) -> ScramLogin:
        """Return the credentials of a user or of a token, as ``scram.FindLogin`` describes."""
        if as_token:
            token = self._find_token(user, mechanism, self.now_ms())
            if token is not None:
                return ScramLogin(
                    token.principal, token.salt, token.iterations, (), token.expiry_ms, token.derive
                )
            return unknown_token_login(user, mechanism)
        stored = self._images.image.scram.get(ScramKey(user, MECHANISMS[mechanism].number))
        if stored is None or user in RESERVED_NAMES:
            # A decoy has keys like others, so that a proof takes as long to be found wrong.
            stored = self.decoys.credential(user, MECHANISMS[mechanism])
        return ScramLogin(KafkaPrincipal(user), stored.salt, stored.iterations, (stored,))

    def password(self, user: str, password: str) -> KafkaPrincipal | None:
        """Check a password, as ``plain_passwords.CheckPassword`` describes."""
        principal = verify_password(self._images.image, self.decoys, user, password)
        return None if user in RESERVED_NAMES else principal
