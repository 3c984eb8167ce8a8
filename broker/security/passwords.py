"""Passwords held against SCRAM credentials, for those who send them in clear over TLS."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias

from broker.security.principal import KafkaPrincipal
from broker.security.scram import BY_NUMBER, DEFAULT_ITERATIONS, password_fits
from metadata_log.image import Image, ScramKey
from metadata_log.records import ScramCredential

CheckPassword: TypeAlias = Callable[[str, str], KafkaPrincipal | None]
"""(user, password) → who that is; None: unknown, or the password is wrong."""

HASHING: Final = ThreadPoolExecutor(2, thread_name_prefix="password")
"""Passwords in clear cost milliseconds each: whoever sends many, without being known yet, keeps
these busy, and neither the loop nor the threads that others wait for."""

_NOBODYS: Final = ScramCredential(
    salt=bytes(16), stored_key=bytes(64), server_key=bytes(64), iterations=DEFAULT_ITERATIONS
)


def verify_password(image: Image, user: str, password: str) -> KafkaPrincipal | None:
    """Who logs in; None: nobody has that name, or it is not the password.

    Takes milliseconds of computing, without the interpreter lock: not for the event loop. An
    unknown user costs what a known one does.
    """
    # The strongest one that the user has; all of them are of the same password, as a rule.
    for number in sorted(BY_NUMBER, reverse=True):
        stored = image.scram.get(ScramKey(user, number))
        if stored is not None:
            fits = password_fits(BY_NUMBER[number], stored, password)
            return KafkaPrincipal(user) if fits else None
    password_fits(BY_NUMBER[max(BY_NUMBER)], _NOBODYS, password)
    return None
