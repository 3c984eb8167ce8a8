"""Users for tests, and the client's side of SASL: kafka-python's SCRAM against Quorate's."""

import warnings
from collections.abc import Callable
from typing import Any, Final

import immutables

from quorate.broker.security.credential_provider import CredentialProvider, FindToken, no_tokens
from quorate.broker.security.oauth_bearer import ValidatesTokens
from quorate.broker.security.sasl_session import SaslOptions, SaslSession
from quorate.broker.security.scram import MECHANISMS, credential, salted_password
from quorate.metadata_log.image import Image, ScramKey
from quorate.metadata_log.records import ScramCredential
from tests.support.followers import ShownImage
from tests.support.kafka_wire import WireClient

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own, at its import
    from kafka.net.sasl.scram import ScramClient

_HANDSHAKE: Final = 17
_AUTHENTICATE: Final = 36

SHA_256, SHA_512 = MECHANISMS["SCRAM-SHA-256"], MECHANISMS["SCRAM-SHA-512"]


def scram_user(password: str, mechanism: str = "SCRAM-SHA-256") -> ScramCredential:
    """Return the credential that is stored for that password."""
    how, salt = MECHANISMS[mechanism], b"salt of a test"
    return credential(how, salted_password(how, password, salt, 4_096), salt, 4_096)


def image_with_users(**passwords: str) -> Image:
    """Return an image in which these users may log in, by each mechanism."""
    users = {
        ScramKey(user, mechanism.number): scram_user(password, mechanism.name)
        for user, password in passwords.items()
        for mechanism in MECHANISMS.values()
    }
    return Image(scram=immutables.Map(users))


class WallClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


def credentials(
    image: Callable[[], Image] | None = None,
    *,
    clock: Callable[[], int] | None = None,
    find_token: FindToken = no_tokens,
    bearer_tokens: ValidatesTokens | None = None,
    **passwords: str,
) -> CredentialProvider:
    fixed = image_with_users(**passwords)
    return CredentialProvider(
        ShownImage(image or (lambda: fixed)),
        pepper=b"pepper",
        wall_clock_ms=clock or WallClock(),
        find_token=find_token,
        bearer_tokens=bearer_tokens,
    )


def sasl_session(
    who: CredentialProvider,
    *,
    mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    max_reauth_ms: int = 0,
) -> SaslSession:
    options = SaslOptions(
        mechanisms=mechanisms,
        credentials=who,
        max_reauth_ms=max_reauth_ms,
        draw_nonce=lambda: "nonce-of-the-broker",
    )
    return SaslSession(options)


class TokenClient(ScramClient):  # type: ignore[misc]
    """Logs in by a delegation token, as Kafka's own clients do."""

    def first_message(self) -> bytes:
        first: bytes = super().first_message()
        self.auth_message += b",tokenauth=true"
        return first + b",tokenauth=true"


def scram_client(user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Any:  # noqa: ANN401
    return ScramClient(user, password, mechanism)


async def log_in(wire: WireClient, client: Any, mechanism: str) -> bool:  # noqa: ANN401 - kafka-python
    """Return whether the broker accepted the identity of the client."""

    async def authenticate(message: bytes) -> Any:  # noqa: ANN401 - a kio response
        return await wire.ask(_AUTHENTICATE, 2, {"auth_bytes": message})

    await wire.ask(_HANDSHAKE, 1, {"mechanism": mechanism})
    first = await authenticate(client.first_message())
    client.process_server_first_message(first.auth_bytes)
    final = await authenticate(client.final_message())
    if final.error_code:
        return False
    client.process_server_final_message(final.auth_bytes)
    return True
