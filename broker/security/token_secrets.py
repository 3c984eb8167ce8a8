"""Secrets of delegation tokens: made of a token's id and a key, never stored (KIP-48).

As in Kafka, a token's secret is HMAC-SHA-512(key, token id), and its base64 form is the password by
which a client authenticates with SCRAM; the token id is its user name. Whoever has the keys can
tell the secret of any token of the image, and nobody else can: the metadata log, its snapshots and
backups hold nothing that lets anybody in.
"""

import base64
import functools
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import immutables

from broker.security.principal import KafkaPrincipal, parse_principal
from broker.security.token_keys import Keys
from metadata_log.image import DelegationToken, Image

ITERATIONS: Final = 4_096
"""Of the hash: its strength is in the secret, 512 random-looking bits, not in many rounds."""

_DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

_SALT_BYTES: Final = 16


def secret_of(key: bytes, token_id: str) -> bytes:
    """The token's secret, 64 bytes."""
    return hmac.digest(key, token_id.encode(), "sha512")


@dataclass(frozen=True, slots=True, repr=False)
class TokenSecret:
    """What a server needs to know of one possible password (RFC 5802)."""

    stored_key: bytes
    server_key: bytes


@dataclass(frozen=True, slots=True, repr=False)
class TokenLogin:
    """What it takes to authenticate with one token by one mechanism.

    ``secrets``: one per key that the token may have been made with; a proof that fits any of them
    is good. Salt and iterations are the same for all of them, and at every broker.
    """

    principal: KafkaPrincipal
    expiry_ms: int
    salt: bytes
    iterations: int
    secrets: tuple[TokenSecret, ...]


def token_login(
    image: Image, token_id: str, mechanism: str, now_ms: int, keys: Keys
) -> TokenLogin | None:
    """None: there is no such token or mechanism, the token has ended, or there are no keys."""
    token, digest = image.tokens.get(token_id), _DIGESTS.get(mechanism)
    if token is None or digest is None or not keys or token.expired(now_ms):
        return None
    # Ids are random and used once, which is all that is asked of a salt.
    salt = hashlib.sha256(f"{mechanism}:{token_id}".encode()).digest()[:_SALT_BYTES]
    return TokenLogin(
        parse_principal(token.owner)._replace(token_authenticated=True),
        min(token.expiry_ms, token.max_ms),
        salt,
        ITERATIONS,
        tuple(_server_side(digest, secret_of(key, token_id), salt) for key in keys),
    )


@functools.lru_cache(maxsize=1_024)
def _server_side(digest: str, secret: bytes, salt: bytes) -> TokenSecret:
    """Takes milliseconds: remembered for the next connection with the same token."""
    salted = hashlib.pbkdf2_hmac(digest, base64.b64encode(secret), salt, ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", digest)
    return TokenSecret(
        stored_key=hashlib.new(digest, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", digest),
    )


class TokenIndex:
    """Which token a secret is of: renewals name tokens by nothing else.

    Follows the image when it is asked, at the price of one look at each token if any has changed.
    """

    def __init__(self) -> None:
        self._keys: Keys = ()
        self._tokens: immutables.Map[str, DelegationToken] = immutables.Map()
        self._secrets: dict[str, Sequence[bytes]] = {}
        self._ids: dict[bytes, str] = {}

    def find(self, image: Image, keys: Keys, secret: bytes) -> str | None:
        """Id of the image's token with that secret, by any of the keys; None: there is none."""
        if keys != self._keys:
            self._keys, self._tokens = keys, immutables.Map()
            self._secrets.clear()
            self._ids.clear()
        if image.tokens is not self._tokens:
            self._catch_up(image.tokens)
        return self._ids.get(secret)

    def _catch_up(self, tokens: "immutables.Map[str, DelegationToken]") -> None:
        for token_id in [one for one in self._secrets if one not in tokens]:
            for secret in self._secrets.pop(token_id):
                del self._ids[secret]
        for token_id in tokens:
            if token_id not in self._secrets:
                secrets = [secret_of(key, token_id) for key in self._keys]
                self._secrets[token_id] = secrets
                self._ids.update(dict.fromkeys(secrets, token_id))
        self._tokens = tokens
