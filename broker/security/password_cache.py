"""Remembers the passwords that were right, so that a user who comes back costs no hashing.

An entry is a digest with a key that only this process has. It is good as long as the user has the
same credentials. Wrong passwords are not remembered.
"""

import hmac
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.security.plain_passwords import CheckPassword
from quorate.broker.security.principal import KafkaPrincipal
from quorate.broker.security.scram import BY_NUMBER
from quorate.metadata_log.image import Image, ScramKey
from quorate.metadata_log.records import ScramCredential

CACHED_USERS_MAX: Final = 10_000


class _Verified(NamedTuple):
    digest: bytes
    credentials: tuple[ScramCredential | None, ...]
    principal: KafkaPrincipal


class PasswordCache:
    """The last right password of each user, ``CACHED_USERS_MAX`` users at most."""

    def __init__(self, images: MetadataFollower, verify: CheckPassword, key: bytes) -> None:
        """``verify`` hashes for milliseconds. ``key`` is random bytes, a secret of this process."""
        self._images = images
        self._verify = verify
        self._key = key
        self._verified: OrderedDict[str, _Verified] = OrderedDict()

    def find(self, user: str, password: str) -> KafkaPrincipal | None:
        """Return the principal if this password of the user was verified before and is still in
        force. This takes microseconds.
        """
        found = self._verified.get(user)
        if found is None or not hmac.compare_digest(found.digest, self._digest(user, password)):
            return None
        if found.credentials != credentials_of(self._images.image, user):
            self._verified.pop(user, None)
            return None
        return found.principal

    def verification(self, user: str, password: str) -> Callable[[], KafkaPrincipal | None]:
        """Return a function that verifies the password on a thread, and remembers it if it is
        right. Its result is None if the user does not exist or the password is wrong.
        """

        def verify() -> KafkaPrincipal | None:
            # They are looked up first: if they change meanwhile, the entry is never found.
            credentials = credentials_of(self._images.image, user)
            principal = self._verify(user, password)
            if principal is not None:
                self._remember(
                    user, _Verified(self._digest(user, password), credentials, principal)
                )
            return principal

        return verify

    def _remember(self, user: str, verified: _Verified) -> None:
        """Store the entry. Each step is atomic, because two threads may do this at once."""
        self._verified[user] = verified
        while len(self._verified) > CACHED_USERS_MAX:
            self._verified.popitem(last=False)

    def _digest(self, user: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{len(user)}:{user}{password}".encode(), "sha256")


def credentials_of(image: Image, user: str) -> tuple[ScramCredential | None, ...]:
    """Return all credentials of a user."""
    return tuple(image.scram.get(ScramKey(user, number)) for number in BY_NUMBER)
