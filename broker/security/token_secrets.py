"""The keys and secrets of delegation tokens, and authentication by them (KIP-48).

The keys come from the configuration and from a file. To change them without a restart, first append
the new key to the file of every broker, so that all of them know it. Then move it to the first line
everywhere. Once the tokens of the old key have ended, remove the old key. If the file cannot be
used, delegation tokens are disabled: that is better than tokens of a key that an operator wanted to
withdraw.

A token's secret is computed from its id and a key, and never stored. As in Kafka, the secret is
HMAC-SHA-512(key, token id). Its base64 form is the password by which a client authenticates with
SCRAM; the token id is the user name. Only a holder of the keys can compute the secret of a token,
so nothing in the metadata log, its snapshots and backups lets anybody log in.

Authentication uses the tokens of the newest metadata image and the keys that this broker has at the
moment.
"""

import base64
import functools
import hashlib
import hmac
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import immutables

from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.security.principal import KafkaPrincipal, parse_principal
from quorate.broker.security.scram import ScramLogin
from quorate.metadata_log.image import DelegationTokenState, Image

log = logging.getLogger(__name__)

SecretKeys = tuple[bytes, ...]
"""The keys, newest first. If there are none, delegation tokens are disabled."""


class KeyFileError(ValueError):
    """A key file is malformed. The message names the file and the line, but never a key."""


class TokenKeys:
    """The keys in force at this moment. The file is checked at every call."""

    def __init__(self, configured: str, file: str) -> None:
        """``configured`` is the key in the configuration, and ``file`` is a file with more keys.
        Either may be empty.
        """
        self._configured: SecretKeys = (configured.encode(),) if configured else ()
        self._path = Path(file) if file else None
        self._seen: object = None
        self._keys: SecretKeys = ()

    def __call__(self) -> SecretKeys:
        if self._path is None:
            return self._configured
        found = _file_state(self._path)
        if found != self._seen:
            self._seen, self._keys = found, self._read(self._path)
        return self._keys

    def _read(self, path: Path) -> SecretKeys:
        try:
            keys = parse_keys(path.read_bytes())
        except (OSError, KeyFileError) as error:
            log.error("there are no delegation tokens until %s can be used: %s", path, error)
            return ()
        log.info("delegation tokens: %d keys in %s", len(keys), path)
        return keys + tuple(key for key in self._configured if key not in keys)


def _file_state(path: Path) -> object:
    """Return a value that identifies the state of the file, or the error number if it cannot be
    read.
    """
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode


def parse_keys(content: bytes) -> SecretKeys:
    """Parse a key file, which has one key on each line. Empty lines and lines that begin with ``#``
    are skipped.

    Raises:
        KeyFileError: the content is not text, has no key, or has a key twice.
    """
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise KeyFileError("it is not UTF-8 text") from error
    keys: list[bytes] = []
    for number, line in enumerate(lines, start=1):
        key = line.strip()
        if not key or key.startswith("#"):
            continue
        if not key.isprintable():
            raise KeyFileError(f"line {number} holds what cannot be printed")
        if key.encode() in keys:
            raise KeyFileError(f"the key of line {number} is there already")
        keys.append(key.encode())
    if not keys:
        raise KeyFileError("it holds no key")
    return tuple(keys)


ITERATIONS: Final = 4_096
"""The iterations of the hash. The secret has 512 random-looking bits, so its strength does not
depend on many iterations.
"""

_DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

_SALT_BYTES: Final = 16


def secret_of(key: bytes, token_id: str) -> bytes:
    """Return the secret of a token, which has 64 bytes."""
    return hmac.digest(key, token_id.encode(), "sha512")


@dataclass(frozen=True, slots=True, repr=False)
class TokenSecret:
    """The keys by which a server verifies one possible password (RFC 5802)."""

    stored_key: bytes
    server_key: bytes


@dataclass(frozen=True, slots=True, repr=False)
class TokenLogin:
    """The credentials of one token for one mechanism.

    ``derive`` returns one secret for each key that the token may have been made with. It takes
    milliseconds. A proof that fits any of them is valid. Salt and iterations are the same for all
    of them, and on every broker.
    """

    principal: KafkaPrincipal
    expiry_ms: int
    salt: bytes
    iterations: int
    derive: Callable[[], tuple[TokenSecret, ...]]


def token_login(
    image: Image, token_id: str, mechanism: str, now_ms: int, keys: SecretKeys
) -> TokenLogin | None:
    """Return the credentials of a token, or None if there is no such token or mechanism, the token
    has expired, or there are no keys.
    """
    token, digest = image.tokens.get(token_id), _DIGESTS.get(mechanism)
    if token is None or digest is None or not keys or token.expired(now_ms):
        return None
    salt = _salt(mechanism, token_id)
    return TokenLogin(
        parse_principal(token.owner)._replace(token_authenticated=True),
        min(token.expiry_ms, token.max_ms),
        salt,
        ITERATIONS,
        lambda: tuple(_server_side(digest, secret_of(key, token_id), salt) for key in keys),
    )


def unknown_token_login(token_id: str, mechanism: str) -> ScramLogin:
    """Return what a client sees that logs in by a token that does not exist, or has expired. Salt
    and iterations are those that the token would have, and no proof fits.
    """
    salt = _salt(mechanism, token_id)

    def derive() -> tuple[TokenSecret, ...]:
        _server_side(_DIGESTS[mechanism], token_id.encode(), salt)
        return ()

    return ScramLogin(KafkaPrincipal(token_id), salt, ITERATIONS, (), derive=derive)


def _salt(mechanism: str, token_id: str) -> bytes:
    """Return the salt of a token. Token ids are random and used once, which is all that a salt
    needs.
    """
    return hashlib.sha256(f"{mechanism}:{token_id}".encode()).digest()[:_SALT_BYTES]


@functools.lru_cache(maxsize=1_024)
def _server_side(digest: str, secret: bytes, salt: bytes) -> TokenSecret:
    """Hash a secret. This takes milliseconds, so the result is cached for the next connection with
    the same token.
    """
    salted = hashlib.pbkdf2_hmac(digest, base64.b64encode(secret), salt, ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", digest)
    return TokenSecret(
        stored_key=hashlib.new(digest, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", digest),
    )


class TokenIndex:
    """Finds the token that has a given secret. A renewal names its token only by the secret.

    The index is updated from the image when it is used. If any token has changed, it checks each
    token once.
    """

    def __init__(self) -> None:
        self._keys: SecretKeys = ()
        self._tokens: immutables.Map[str, DelegationTokenState] = immutables.Map()
        self._secrets: dict[str, Sequence[bytes]] = {}
        self._ids: dict[bytes, str] = {}

    def find(self, image: Image, keys: SecretKeys, secret: bytes) -> str | None:
        """Return the id of the token of the image that has that secret by any of the keys, or None
        if there is none.
        """
        if keys != self._keys:
            self._keys, self._tokens = keys, immutables.Map()
            self._secrets.clear()
            self._ids.clear()
        if image.tokens is not self._tokens:
            self._catch_up(image.tokens)
        return self._ids.get(secret)

    def _catch_up(self, tokens: "immutables.Map[str, DelegationTokenState]") -> None:
        for token_id in [one for one in self._secrets if one not in tokens]:
            for secret in self._secrets.pop(token_id):
                del self._ids[secret]
        for token_id in tokens:
            if token_id not in self._secrets:
                secrets = [secret_of(key, token_id) for key in self._keys]
                self._secrets[token_id] = secrets
                self._ids.update(dict.fromkeys(secrets, token_id))
        self._tokens = tokens


class TokenLogins:
    """Finds the credentials of delegation tokens. SCRAM uses it for a client that sends
    ``tokenauth=true``.
    """

    def __init__(self, images: MetadataFollower, keys: Callable[[], SecretKeys]) -> None:
        self._images = images
        self._keys = keys

    def find(self, token_id: str, mechanism: str, now_ms: int) -> TokenLogin | None:
        """Return the credentials of a token, or None if there is no such token, it has expired, or
        delegation tokens are disabled.

        ``mechanism`` is "SCRAM-SHA-256" or "SCRAM-SHA-512", and ``now_ms`` is the wall clock.
        """
        return token_login(self._images.image, token_id, mechanism, now_ms, self._keys())
