"""Unmodified clients authenticate with tokens of an identity provider (KIP-255, KIP-768)."""

import subprocess
import time
import tomllib
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from quorate.cluster.cluster_ports import PortReservation
from quorate.cluster.layout import write_atomically
from quorate.testing import RunningCluster, running_cluster
from tests.support.identity_provider import (
    AUDIENCE,
    ISSUER,
    OTHER_RSA_KEY,
    IdentityProvider,
    claims,
    identity_provider,
    key_set,
    public,
    signed,
)
from tests.support.kafka_clients import PATIENCE_S
from tests.support.kafka_jars import kafka_home
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.integration]


class Guarded:
    """A broker with a listener that asks for tokens, and the provider of these."""

    def __init__(self, cluster: RunningCluster, provider: IdentityProvider) -> None:
        self.cluster = cluster
        self.provider = provider
        with PortReservation() as ports:
            self.bootstrap = f"127.0.0.1:{ports.claim_any()}"
        plain = cluster.broker_address(1)
        path = cluster.folder / "config" / "broker-1.toml"
        values: dict[str, Any] = {
            **tomllib.loads(path.read_text()),
            "listeners": f"PLAINTEXT://{plain},SASL_PLAINTEXT://{self.bootstrap}",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/keys",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms": 1_000,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "connection.failed.authentication.delay.ms": 10,
        }
        lines = [
            f'"{key}" = {value if isinstance(value, int) else repr(value)}'
            for key, value in values.items()
        ]
        write_atomically(path, "\n".join(lines) + "\n")
        cluster.restart_broker(1)

    @property
    def log(self) -> str:
        return (self.cluster.folder / "logs" / "broker-1.log").read_text()

    def options(self, **more: object) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            **{key.replace("_", "."): value for key, value in more.items()},
        }

    def admin(self, token: str) -> AdminClient:
        """A client with a token that its ``oauth_cb`` gives it."""
        options: dict[str, Any] = {
            **self.options(),
            "oauth_cb": lambda _: (token, time.time() + 600),
        }
        return AdminClient(options)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    with identity_provider() as provider, running_cluster() as cluster:
        yield Guarded(cluster, provider)


def test_kip_255_a_client_with_a_token_of_its_own(guarded: Guarded) -> None:
    admin = guarded.admin(signed(claims(time.time())))
    assert admin.list_topics(timeout=PATIENCE_S).brokers


def test_kip_768_a_client_that_gets_its_token_from_the_provider(guarded: Guarded) -> None:
    guarded.provider.token = signed(claims(time.time(), sub="service"))
    oidc = guarded.options(
        sasl_oauthbearer_method="oidc",
        sasl_oauthbearer_client_id="service",
        sasl_oauthbearer_client_secret="secret",
        sasl_oauthbearer_token_endpoint_url=f"{guarded.provider.url}/token",
    )
    admin = AdminClient(oidc)
    admin.poll(0)
    assert admin.list_topics(timeout=PATIENCE_S).brokers
    assert "/token" in guarded.provider.asked


def test_kip_768_a_bad_token_is_refused_and_the_log_says_why(guarded: Guarded) -> None:
    admin = guarded.admin(signed(claims(time.time(), aud="mail")))
    with pytest.raises(confluent_kafka.KafkaException):
        admin.list_topics(timeout=1)
    why = "authentication by OAUTHBEARER: the token is refused: Audience doesn't match"
    wait_until(lambda: why in guarded.log, "the broker's log to say why")


def test_kip_768_keys_change_while_the_broker_runs(guarded: Guarded) -> None:
    new = signed(claims(time.time()), OTHER_RSA_KEY, headers={"kid": "new"})
    before = guarded.provider.keys
    guarded.provider.keys = key_set(public(OTHER_RSA_KEY, "new"))
    try:
        admin = guarded.admin(new)
        wait_until(lambda: bool(brokers(admin)), "the new key to be known")
    finally:
        guarded.provider.keys = before
    old = guarded.admin(signed(claims(time.time())))
    wait_until(lambda: bool(brokers(old)), "the earlier key to be known again")


def brokers(admin: AdminClient) -> object:
    try:
        return admin.list_topics(timeout=1).brokers
    except confluent_kafka.KafkaException:
        return None


@pytest.mark.slow
def test_kip_368_a_client_authenticates_again_before_its_token_ends(guarded: Guarded) -> None:
    given: list[float] = []

    def oauth_cb(_config: str) -> tuple[str, float]:
        ends_s = time.time() + 3
        given.append(ends_s)
        return signed(claims(time.time(), exp=ends_s)), ends_s

    producer = confluent_kafka.Producer({**guarded.options(), "oauth_cb": oauth_cb})
    delivered: list[object] = []

    def goes_on() -> bool:
        producer.produce("renewed", b"v", on_delivery=lambda error, _: delivered.append(error))
        producer.flush(PATIENCE_S)
        return len(given) > 2 and time.time() > given[0]

    wait_until(goes_on, "two more tokens")
    assert set(delivered) == {None}


@pytest.mark.slow
def test_kip_768_javas_client_with_a_token_in_a_file(guarded: Guarded) -> None:
    path = guarded.cluster.folder / "token"
    path.write_text(signed(claims(time.time())))
    login = "org.apache.kafka.common.security.oauthbearer"
    done = subprocess.run(
        [
            "java",
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={path.as_uri()}",
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={path}",
            "-cp",
            f"{kafka_home()}/libs/*",
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", "java", "--num-records", "10", "--record-size", "10"),
            *("--throughput", "-1", "--producer-props"),
            f"bootstrap.servers={guarded.bootstrap}",
            "security.protocol=SASL_PLAINTEXT",
            "sasl.mechanism=OAUTHBEARER",
            f"sasl.jaas.config={login}.OAuthBearerLoginModule required;",
            f"sasl.login.callback.handler.class={login}.OAuthBearerLoginCallbackHandler",
            f"sasl.oauthbearer.token.endpoint.url={path.as_uri()}",
        ],
        check=False,
        timeout=100,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "10 records sent" in done.stdout
