"""An identity provider for tests: keys, tokens, and a small server that gives both away."""

import base64
import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "kafka"

RSA_KEY: Final = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
OTHER_RSA_KEY: Final = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
EC_KEY: Final = ec.generate_private_key(ec.SECP256R1())


def public(key: Any, key_id: str, **more: str) -> dict[str, Any]:  # noqa: ANN401 - a private key
    """The public half of a key, as a JSON Web Key."""
    algorithm = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else _EC
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": key_id, **more}


_EC: Final = jwt.algorithms.ECAlgorithm


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def claims(now_s: float, **changed: object) -> dict[str, object]:
    """The claims of a valid token of alice; those that are changed to None are left out."""
    valid = {
        "sub": "alice",
        "iss": ISSUER,
        "aud": AUDIENCE,
        "iat": int(now_s),
        "exp": int(now_s) + 600,
        "scope": "read write",
    }
    return {name: value for name, value in {**valid, **changed}.items() if value is not None}


def signed(
    content: dict[str, object],
    key: Any = RSA_KEY,  # noqa: ANN401 - a private key
    algorithm: str = "RS256",
    headers: dict[str, object] | None = None,
) -> str:
    """A token with the key id "rsa", or with other headers."""
    if not isinstance(content.get("iss", ""), str):
        content = dict(content)
    return jwt.encode(
        content, key, algorithm, headers={"kid": "rsa"} if headers is None else headers
    )


def unsigned(content: dict[str, object], **header: object) -> str:
    """A token without a signature."""
    parts = ({"alg": "none", **header}, content)
    encoded = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in parts]
    return b".".join([*encoded, b""]).decode()


class IdentityProvider:
    """What the server gives away. Tests change it while it runs."""

    def __init__(self) -> None:
        self.keys = key_set(public(RSA_KEY, "rsa"))
        self.token = ""
        self.is_away = False
        self.url = ""
        self.asked: list[str] = []


@contextlib.contextmanager
def identity_provider() -> Iterator[IdentityProvider]:
    """Serve keys at /keys, and a token to whoever asks at /token."""
    provider = IdentityProvider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(provider.keys)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = {
                "access_token": provider.token,
                "token_type": "Bearer",
                "expires_in": 600,
                "scope": "kafka",
            }
            self._answer(json.dumps(answer).encode())

        def _answer(self, body: bytes) -> None:
            provider.asked.append(self.path)
            self.send_response(503 if provider.is_away else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Write nothing to standard error."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        provider.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
