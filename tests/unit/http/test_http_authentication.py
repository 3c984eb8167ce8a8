"""Who the client of an HTTP request is: by password, by token, by certificate, or nobody."""

import base64
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from quorate.broker.security.bearer_tokens import BearerToken, InvalidToken
from quorate.broker.security.failed_logins import FailedLogins
from quorate.broker.security.http_security import check_http_listeners
from quorate.broker.security.principal import KafkaPrincipal
from quorate.common.configuration import ConfigError
from quorate.common.tls.certificate_authority import CertificateAuthority
from quorate.common.tls.identity import Role
from tests.support.http_listeners import TriedListener
from tests.support.sasl import credentials


def basic(user: str, password: str) -> dict[str, str]:
    """Return the header of a client that logs in by password."""
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {encoded}"}


RIGHT = basic("alice", "secret")
JWKS = {"sasl_oauthbearer_jwks_endpoint_url": "https://issuer.example/keys"}


class OneToken:
    """Takes one token."""

    def validate(self, token: str) -> BearerToken:
        if token != "a.valid.token":
            raise InvalidToken("another")
        return BearerToken(KafkaPrincipal("orders"), 0)


async def asked(
    listener: TriedListener,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | bool = True,
) -> tuple[int, str]:
    """Return the status, and the principal that the route saw."""
    answer = await listener.ask("GET", "/seen/x", headers=headers, ssl=tls)
    who = str(listener.contexts[-1].principal) if listener.contexts else ""
    return answer.status, who


async def test_a_user_logs_in_by_password() -> None:
    async with TriedListener(http_authentication="basic") as listener:
        assert await asked(listener, headers=RIGHT) == (200, "User:alice")


@pytest.mark.parametrize(
    "header",
    [
        None,
        "Basic",
        "Basic !!!",
        "Basic YWxpY2U=",  # alice, without a colon
        basic("alice", "wrong")["Authorization"],
        basic("nobody", "secret")["Authorization"],
        basic("ANONYMOUS", "secret")["Authorization"],
        "Bearer a.valid.token",
        "Basic " + "a" * 9_000,
    ],
)
async def test_other_clients_are_refused_alike(header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    async with TriedListener(http_authentication="BASIC") as listener:
        answer = await listener.ask("GET", "/seen/x", headers=headers)
    assert (listener.contexts, listener.audited) == ([], [])
    if len(header or "") > 8_190:
        assert answer.status == 400
        return
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"].startswith("Basic ")
    assert answer.json() == {
        "error_code": 40101,
        "message": "authentication failed or is missing",
    }


async def test_a_failed_login_is_delayed(monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[tuple[str, int]] = []

    async def delay(_self: FailedLogins, host: str, _began_s: float, delay_ms: int) -> None:
        delays.append((host, delay_ms))

    monkeypatch.setattr(FailedLogins, "delay", delay)
    async with TriedListener(
        http_authentication="BASIC", connection_failed_authentication_delay_ms=70
    ) as listener:
        await asked(listener)
        assert delays == []
        await asked(listener, headers=basic("alice", "wrong"))
        assert delays == [("127.0.0.1", 70)]


async def test_a_token_is_validated() -> None:
    who = credentials(alice="secret", bearer_tokens=OneToken())
    async with TriedListener(who, http_authentication="BEARER,BASIC", **JWKS) as listener:
        valid = {"Authorization": "Bearer a.valid.token"}
        assert await asked(listener, headers=valid) == (200, "User:orders")
        assert await asked(listener, headers=RIGHT) == (200, "User:alice")
        assert (await asked(listener, headers={"Authorization": "Bearer b"}))[0] == 401


async def test_nobody_is_asked_without_the_key() -> None:
    async with TriedListener() as listener:
        assert await asked(listener, headers=RIGHT) == (200, "User:ANONYMOUS")


async def test_a_certificate_names_its_user(tmp_path: Path) -> None:
    authority = CertificateAuthority.open(tmp_path / "certs")
    for number in (1, 2):
        authority.issue_node(Role.BROKER, number, hosts=["127.0.0.1"])
    secured = TriedListener(
        registry_listener="https://127.0.0.1:0",
        http_authentication="BASIC",
        ssl_keystore_location=str(authority.folder / "broker-1.pem"),
        ssl_truststore_location=str(authority.truststore),
        ssl_client_auth="requested",
        ssl_principal_mapping_rules="RULE:.*CN=broker-([0-9]).*/broker$1/,DEFAULT",
    )
    plain = ssl.create_default_context(cafile=str(authority.truststore))
    shown = ssl.create_default_context(cafile=str(authority.truststore))
    shown.load_cert_chain(authority.folder / "broker-2.pem")
    async with secured as listener:
        assert (await asked(listener, tls=plain))[0] == 401
        status, who = await asked(listener, tls=shown)
        assert (status, who) == (200, "User:broker2")
        assert await asked(listener, tls=shown, headers=RIGHT) == (200, "User:alice")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"registry_listener": "127.0.0.1:8081"}, "registry.listener=127.0.0.1:8081"),
        ({"registry_listener": "http://127.0.0.1"}, "must be host:port"),
        ({"registry_listener": "ftp://127.0.0.1:1"}, "must be http://host:port"),
        ({"http_authentication": "DIGEST"}, "http.authentication=DIGEST"),
        ({"http_authentication": "BEARER"}, "sasl.oauthbearer.jwks.endpoint.url"),
    ],
)
def test_what_is_malformed_is_named(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        check_http_listeners(TriedListener(**values).config)
