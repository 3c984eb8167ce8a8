"""SCRAM users: changes of their credentials, the results, and descriptions."""

import hashlib
import secrets
from dataclasses import dataclass
from typing import Final

from quorate.client.results.item_outcome import ItemOutcome, outcome_of
from quorate_proto.v1 import admin_pb2

MECHANISM_NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
MECHANISM_NAMES: Final = {number: name for name, number in MECHANISM_NUMBERS.items()}
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

DEFAULT_ITERATIONS: Final = 8_192
_SALT_BYTES: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUpsertion:
    """A credential to set. The password stays in this process; brokers receive values derived from
    it."""

    user: str
    mechanism: str
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"ScramUpsertion(user={self.user!r}, mechanism={self.mechanism!r})"

    @classmethod
    def of_password(
        cls, user: str, mechanism: str, password: str, iterations: int = DEFAULT_ITERATIONS
    ) -> "ScramUpsertion":
        """Derive a credential from a password.

        Raises:
            ValueError: the mechanism is unknown, or there is less than one iteration.
        """
        if mechanism not in _HASHES:
            raise ValueError(f"{mechanism}: the mechanisms are {', '.join(_HASHES)}")
        salt = secrets.token_bytes(_SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)
        return cls(
            user=user,
            mechanism=mechanism,
            iterations=iterations,
            salt=salt,
            salted_password=salted,
        )

    def to_proto(self) -> admin_pb2.ScramUpsertion:
        return admin_pb2.ScramUpsertion(
            user=self.user,
            mechanism=MECHANISM_NUMBERS[self.mechanism],
            iterations=self.iterations,
            salt=self.salt,
            salted_password=self.salted_password,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramDeletion:
    """A credential to remove."""

    user: str
    mechanism: str

    def to_proto(self) -> admin_pb2.ScramDeletion:
        return admin_pb2.ScramDeletion(user=self.user, mechanism=MECHANISM_NUMBERS[self.mechanism])


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramResult(ItemOutcome):
    """The result for one user."""

    user: str

    @classmethod
    def from_proto(cls, result: admin_pb2.ScramResult) -> "ScramResult":
        return cls(user=result.user, **outcome_of(result))

    def _refusal(self) -> str:
        return f"user {self.user}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUser:
    """The SCRAM mechanisms of a user, with the iterations of each."""

    user: str
    iterations: dict[str, int]

    @classmethod
    def from_proto(cls, user: admin_pb2.DescribedScramUser) -> "ScramUser":
        return cls(
            user=user.user,
            iterations={MECHANISM_NAMES[one.mechanism]: one.iterations for one in user.credentials},
        )
