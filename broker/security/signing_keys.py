"""The keys that tokens are signed with: a JSON Web Key Set (RFC 7517), fetched again and again.

Fetching takes a thread, a bounded time and a bounded size. While the endpoint is away, or answers
with nonsense, the keys from before stay in use: a token that they do not fit is refused.
"""

import asyncio
import json
import logging
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple

from quorate.broker.config.oauth import (
    SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_URL,
)
from quorate.common.configuration import Values

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

log = logging.getLogger(__name__)

JWKS_BYTES_MAX: Final = 1 << 20
KEYS_MAX: Final = 256
FETCH_TIMEOUT_S: Final = 10.0
RETRY_MIN_S: Final = 1.0
RETRY_MAX_S: Final = 60.0

UNKNOWN_KEY_REFRESH_S: Final = 10.0
"""Tokens with unknown keys have the keys fetched again, but never sooner than so long after the
fetch before: anybody can send such tokens."""

_ALGORITHMS: Final = {
    "RSA": frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    "EC:P-256": frozenset({"ES256"}),
    "EC:P-384": frozenset({"ES384"}),
    "EC:P-521": frozenset({"ES512"}),
    "OKP:Ed25519": frozenset({"EdDSA"}),
    "OKP:Ed448": frozenset({"EdDSA"}),
}
"""The algorithms that a kind of key may sign with. Symmetric keys are not among them, and neither
is ``none``."""


class KeysUnavailable(Exception):
    """Keys could not be fetched. The message says why."""


class SigningKey(NamedTuple):
    """A public key, and the algorithms that a token may name with it."""

    key: "PublicKeyTypes"
    algorithms: frozenset[str]


SigningKeys = dict[str, SigningKey]
"""Keys by their ids."""


class SigningKeySource:
    """The newest keys of one endpoint."""

    def __init__(
        self,
        url: str,
        refresh_s: float,
        fetch: Callable[[str], bytes],
        executor: Executor | None = None,
    ) -> None:
        """``fetch`` returns what is at the URL. It runs on a thread, and raises OSError or
        ValueError.
        """
        self._url = url
        self._refresh_s = refresh_s
        self._fetch = fetch
        self._executor = executor or ThreadPoolExecutor(1, thread_name_prefix="jwks")
        self._keys: SigningKeys = {}
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unknown_key = asyncio.Event()

    @classmethod
    def of(cls, config: Values) -> "SigningKeySource":
        refresh_s = config[SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS] / 1_000
        return cls(config[SASL_OAUTHBEARER_JWKS_ENDPOINT_URL], refresh_s, fetched)

    async def start(self) -> None:
        """Fetch the keys, and go on fetching them. A broker starts without an endpoint over the
        network, because it must not depend on it, but not without its file.

        Raises:
            KeysUnavailable: the URL names a file that has no keys.
        """
        self._loop = asyncio.get_running_loop()
        is_there = await self._refreshed(is_first=True)
        self._task = asyncio.create_task(self._follow(is_there), name="jwks")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._executor.shutdown(wait=False, cancel_futures=True)

    def find(self, key_id: str | None) -> SigningKey | None:
        """Return the key of an id. Without an id, return the only key if there is one alone.

        Any thread may call this. An unknown id has the keys fetched again soon.
        """
        keys = self._keys
        if key_id is None:
            return next(iter(keys.values())) if len(keys) == 1 else None
        found = keys.get(key_id)
        if found is None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._unknown_key.set)
        return found

    async def _follow(self, is_there: bool) -> None:
        retry_s = RETRY_MIN_S
        while True:
            if is_there:
                retry_s = RETRY_MIN_S
                await self._wait_for_reason()
            else:
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, RETRY_MAX_S)
            self._unknown_key.clear()
            is_there = await self._refreshed(is_first=False)

    async def _wait_for_reason(self) -> None:
        """Return when it is time for new keys, or when a token had an unknown one."""
        least_s = min(UNKNOWN_KEY_REFRESH_S, self._refresh_s)
        await asyncio.sleep(least_s)
        try:
            await asyncio.wait_for(self._unknown_key.wait(), self._refresh_s - least_s)
        except TimeoutError:
            return

    async def _refreshed(self, *, is_first: bool) -> bool:
        """Fetch the keys, and return whether it went well."""
        loop = asyncio.get_running_loop()
        try:
            self._keys = await loop.run_in_executor(self._executor, self._read)
        except KeysUnavailable as error:
            if is_first and self._url.startswith("file:"):
                raise
            kept = f"{len(self._keys)} earlier keys stay in use" if self._keys else "there are none"
            log.warning("keys of tokens cannot be fetched, and %s: %s", kept, error)
            return False
        log.info("%d keys of tokens are at %s", len(self._keys), self._url)
        return True

    def _read(self) -> SigningKeys:
        try:
            keys = keys_in(self._fetch(self._url))
        except (OSError, ValueError) as error:
            raise KeysUnavailable(f"{self._url}: {error}") from error
        if not keys:
            raise KeysUnavailable(f"{self._url} has no key that tokens can be signed with")
        return keys


def fetched(url: str) -> bytes:
    """Return what is at the URL.

    Raises:
        OSError, ValueError: not there, not in time, or too large.
    """
    ends_s = time.monotonic() + FETCH_TIMEOUT_S
    content = bytearray()
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    with _OPENER.open(request, timeout=FETCH_TIMEOUT_S) as answer:
        while piece := answer.read1(64 << 10):
            content += piece
            if len(content) > JWKS_BYTES_MAX:
                raise ValueError(f"it is larger than {JWKS_BYTES_MAX} bytes")
            if time.monotonic() > ends_s:
                raise TimeoutError(f"it took longer than {FETCH_TIMEOUT_S:g} s")
    return bytes(content)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: keys come from the configured place alone."""

    def redirect_request(self, *_arguments: object) -> None:
        return None


_OPENER: Final = urllib.request.build_opener(_NoRedirects)


def keys_in(content: bytes) -> SigningKeys:
    """Return the public keys of a set that can sign tokens. A key without an id has the id "".

    Raises:
        ValueError: this is no key set.
    """
    from jwt import PyJWK, PyJWTError

    document = json.loads(content)
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list) or len(listed) > KEYS_MAX:
        raise ValueError(f"it is no JSON Web Key Set of up to {KEYS_MAX} keys")
    keys: SigningKeys = {}
    for one in listed:
        algorithms = _algorithms_of(one)
        if not algorithms:
            continue
        # What is private in a key is none of a broker's business.
        public = {name: value for name, value in one.items() if name in _PUBLIC}
        try:
            key = PyJWK.from_dict(public, algorithm=min(algorithms)).key
        except (PyJWTError, TypeError, ValueError) as error:
            log.warning("a key of tokens is passed over: %s", error)
            continue
        keys[str(one.get("kid", ""))] = SigningKey(key, algorithms)
    return keys


_PUBLIC: Final = ("kty", "crv", "n", "e", "x", "y")


def _algorithms_of(key: object) -> frozenset[str]:
    """Return the algorithms that a token may name with this key; none if it may sign nothing."""
    if not isinstance(key, dict) or key.get("use", "sig") != "sig":
        return frozenset()
    kind = str(key.get("kty"))
    fitting = _ALGORITHMS.get(kind if kind == "RSA" else f"{kind}:{key.get('crv')}", frozenset())
    named = key.get("alg")
    return fitting if named is None else fitting & {named}
