"""Credentials of users who do not exist, which no client can tell from those of real users.

A SCRAM server must answer a user name with a salt and a number of iterations before the client has
proved anything. For a name without a credential these come from a key that all brokers have: from
the metadata log, or, below metadata_version 6, from a secret of the process. Salt and iterations
look like those of the real users: each kind of credential is as frequent among the decoys as among
the users. A decoy changes only with its own kind, which looks like a new password.
"""

import hashlib
import hmac
import math
import string
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.security.scram import BY_NUMBER, ScramMechanism
from quorate.metadata_log.image import Changes, Image, ScramKey
from quorate.metadata_log.records import ScramCredential

KINDS_MAX: Final = 16
"""The number of kinds that decoys are made of: the most frequent ones. Each costs one hash."""


class CredentialKind(NamedTuple):
    """The parts of a credential that a client sees before it logs in, without the random part.

    ``alphabet`` is empty if salts are of any bytes.
    """

    iterations: int
    salt_bytes: int
    alphabet: bytes = b""


USUAL_KIND: Final = CredentialKind(8_192, 24)
"""The kind that ``quorate users`` and the admin client make. It is used while there is no user."""

_ALPHABETS: Final = (
    (string.hexdigits[:16]).encode(),
    (string.digits + string.ascii_lowercase).encode(),
    (string.digits + string.ascii_letters).encode(),
    (string.digits + string.ascii_letters + "+/=-_").encode(),
)
"""The alphabets of salts that are texts, as Kafka's tools make them; the smallest come first."""

K = TypeVar("K")


def kind_of(credential: ScramCredential) -> CredentialKind:
    """Return the kind of a stored credential."""
    salt = credential.salt
    alphabet = b""
    if salt.isascii():
        fitting = (one for one in _ALPHABETS if not salt.translate(None, one))
        alphabet = next(fitting, b"")
    return CredentialKind(credential.iterations, len(salt), alphabet)


class ScramDecoys:
    """Makes the credentials of users who do not exist, from the newest image."""

    def __init__(self, images: MetadataFollower, process_key: bytes) -> None:
        """``process_key`` is used while the metadata log has no key for decoys."""
        self._images = images
        self._process_key = process_key
        self._lock = threading.Lock()
        """Passwords are hashed on threads, and the image changes on the event loop."""
        self._counted: object = None
        self._kinds: dict[ScramKey, CredentialKind] = {}
        self._counts: dict[int, Counter[CredentialKind]] = {}

    def on_image(self, image: Image, changes: Changes) -> None:
        """Count the credentials that have changed."""
        with self._lock:
            if self._counted is not None:
                self._count(image, changes.scram)

    def credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        """Return the credential of a user who has none for this mechanism. No proof fits it."""
        image = self._counted_image()
        key = image.scram_decoy_key or self._process_key
        counts = self._counts.get(mechanism.number) or {USUAL_KIND: 1}
        kind = _choose(dict(sorted(counts.items())), key, f"{mechanism.name},{user}")
        seed = hmac.digest(key, f"{mechanism.name},{user},{kind}".encode(), "sha256")
        hash_bytes = hashlib.new(mechanism.hash_name).digest_size
        return ScramCredential(
            salt=_salt(kind, seed),
            stored_key=hashlib.shake_256(seed + b"stored").digest(hash_bytes),
            server_key=hashlib.shake_256(seed + b"server").digest(hash_bytes),
            iterations=kind.iterations,
        )

    def password_mechanism(self, user: str) -> ScramMechanism:
        """Return the mechanism against which the password of an unknown user is hashed. Of a real
        user it is the strongest one, so users with both count for the stronger.
        """
        image = self._counted_image()
        key = image.scram_decoy_key or self._process_key
        weights: dict[int, int] = {}
        stronger = 0
        for number in sorted(BY_NUMBER, reverse=True):
            count = sum(tuple(self._counts.get(number, Counter()).values()))
            weights[number] = max(0, count - stronger)
            stronger = max(stronger, count)
        known = {number: weight for number, weight in weights.items() if weight}
        return BY_NUMBER[_choose(known or {max(BY_NUMBER): 1}, key, f"password,{user}")]

    def _counted_image(self) -> Image:
        image = self._images.image
        with self._lock:
            if self._counted is not image.scram:
                self._count(image, {*image.scram, *self._kinds})
        return image

    def _count(self, image: Image, changed: Iterable[ScramKey]) -> None:
        for key in changed:
            before = self._kinds.pop(key, None)
            if before is not None:
                counts = self._counts[key.mechanism]
                counts[before] -= 1
                if not counts[before]:
                    del counts[before]
            credential = image.scram.get(key)
            if credential is not None:
                kind = self._kinds[key] = kind_of(credential)
                self._counts.setdefault(key.mechanism, Counter())[kind] += 1
        self._counted = image.scram


def _choose(weights: Mapping[K, int], key: bytes, name: str) -> K:
    """Return one of the keys of ``weights`` by the name alone, each as often as its weight says.

    This is weighted rendezvous hashing: a change of one weight moves no name between the others.
    """
    if len(weights) == 1:
        return next(iter(weights))

    def score(item: tuple[K, int]) -> float:
        digest = hmac.digest(key, f"{name},{item[0]}".encode(), "sha256")
        fraction = (int.from_bytes(digest[:8]) + 1) / (2**64 + 1)
        return math.log(fraction) / item[1]

    return max(_most_frequent(weights), key=score)[0]


def _most_frequent(weights: Mapping[K, int]) -> Sequence[tuple[K, int]]:
    return sorted(weights.items(), key=lambda item: -item[1])[:KINDS_MAX]


def _salt(kind: CredentialKind, seed: bytes) -> bytes:
    count, alphabet = kind.salt_bytes, kind.alphabet
    if not alphabet:
        return hashlib.shake_256(seed + b"salt").digest(count)
    drawn = hashlib.shake_256(seed + b"salt").digest(2 * count)
    pairs = zip(drawn[::2], drawn[1::2], strict=True)
    return bytes(alphabet[(256 * high + low) % len(alphabet)] for high, low in pairs)
