"""Logins with delegation tokens, as this broker's image and keys have them at the moment."""

from collections.abc import Callable

from broker.security.token_keys import Keys
from broker.security.token_secrets import TokenLogin, token_login
from metadata_log.image import Image


class TokenLogins:
    """Asked by SCRAM for a client that says ``tokenauth=true``."""

    def __init__(self, image: Callable[[], Image], keys: Callable[[], Keys]) -> None:
        self._image = image
        self._keys = keys

    def find(self, token_id: str, mechanism: str, now_ms: int) -> TokenLogin | None:
        """``mechanism``: "SCRAM-SHA-256" or "SCRAM-SHA-512"; ``now_ms``: wall clock.

        None: there is no such token, it has ended, or tokens are switched off.
        """
        return token_login(self._image(), token_id, mechanism, now_ms, self._keys())
