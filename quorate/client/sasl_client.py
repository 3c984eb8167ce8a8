"""The client's side of a login at a Kafka listener: PLAIN and SCRAM (RFC 5802).

The exchange is a generator that yields messages to send and receives the answers, so it can be
tested without a socket.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Generator
from typing import Final

from quorate.client.errors import QuorateError

ITERATIONS_MAX: Final = 1 << 20
"""A larger number of iterations would only keep this client busy."""

Exchange = Generator[bytes, bytes, None]


class LoginFailed(QuorateError):
    """The broker refused the login, or did not prove that it knows the password."""


def login(
    mechanism: str,
    username: str,
    password: str,
    nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24),
) -> Exchange:
    """Exchange the messages of one login.

    Raises:
        LoginFailed: the broker does not know the password either, or its answer is malformed.
    """
    if mechanism == "PLAIN":
        return _plain(username, password)
    return _scram(mechanism, username, password, nonce())


def _plain(username: str, password: str) -> Exchange:
    yield b"\0" + username.encode() + b"\0" + password.encode()


def _scram(mechanism: str, username: str, password: str, nonce: str) -> Exchange:
    algorithm = "sha512" if mechanism.endswith("512") else "sha256"
    name = username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    server_first = (yield f"n,,{first}".encode()).decode()
    told = _attributes(server_first)
    try:
        salt, iterations = base64.b64decode(told["s"], validate=True), int(told["i"])
        combined = told["r"]
    except (KeyError, ValueError) as error:
        raise LoginFailed("the broker's SCRAM challenge is malformed") from error
    if not combined.startswith(nonce) or not 1 <= iterations <= ITERATIONS_MAX:
        raise LoginFailed("the broker's SCRAM challenge is not an answer to this login")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    without_proof = f"c=biws,r={combined}"
    signed = f"{first},{server_first},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    signature = hmac.digest(stored_key, signed, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    final = f"{without_proof},p={base64.b64encode(proof).decode()}"
    server_final = _attributes((yield final.encode()).decode())
    server_key = hmac.digest(salted, b"Server Key", algorithm)
    expected = base64.b64encode(hmac.digest(server_key, signed, algorithm)).decode()
    if not hmac.compare_digest(server_final.get("v", ""), expected):
        raise LoginFailed("the broker did not show that it knows this user's password")


def _attributes(message: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.split(",") if part[1:2] == "="}
