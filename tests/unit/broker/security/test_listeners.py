"""Tests of ``listeners`` and the keys beside it: valid values, and values that are refused."""

import pytest

from quorate.broker.config.spec import BROKER_SPEC
from quorate.broker.kafka.connection.requests import ClientSession
from quorate.broker.security.listener_security import (
    ListenerConfig,
    ListenerSecurity,
    SecurityProtocol,
    UnmappedCertificate,
    check_listeners,
    configured_listeners,
    listener_security_of,
)
from quorate.common.configuration import ConfigError, Configuration
from quorate.common.types import Endpoint
from tests.support.sasl import credentials


def config(**values: str) -> Configuration:
    """``_`` for ``.``"""
    given: dict[str, object] = {
        "broker.id": 1,
        "log.dir": "d",
        "quorum.bootstrap.servers": "127.0.0.1:1",
    }
    return BROKER_SPEC.parse(given | {key.replace("_", "."): one for key, one in values.items()})


def test_by_default_there_is_one_in_plain_text() -> None:
    assert configured_listeners(config()) == [
        ListenerConfig("PLAINTEXT", SecurityProtocol.PLAINTEXT, Endpoint("127.0.0.1", 9092))
    ]


def test_several_have_their_protocols_and_advertised_addresses() -> None:
    found = configured_listeners(
        config(
            listeners="INSIDE://10.0.0.1:9092, outside://0.0.0.0:9094,SASL_PLAINTEXT://h:9095",
            advertised_listeners="OUTSIDE://kafka.example:443",
            listener_security_protocol_map="inside:SSL,OUTSIDE:SASL_SSL,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT",
        )
    )
    assert found == [
        ListenerConfig("INSIDE", SecurityProtocol.SSL, Endpoint("10.0.0.1", 9092)),
        ListenerConfig(
            "OUTSIDE",
            SecurityProtocol.SASL_SSL,
            Endpoint("0.0.0.0", 9094),
            Endpoint("kafka.example", 443),
        ),
        ListenerConfig("SASL_PLAINTEXT", SecurityProtocol.SASL_PLAINTEXT, Endpoint("h", 9095)),
    ]


def test_protocols_say_what_they_have() -> None:
    has = {one.value: (one.has_tls, one.has_sasl) for one in SecurityProtocol}
    assert has == {
        "PLAINTEXT": (False, False),
        "SSL": (True, False),
        "SASL_PLAINTEXT": (False, True),
        "SASL_SSL": (True, True),
    }


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"listeners": ""}, "listeners is empty"),
        ({"listeners": "PLAINTEXT://h"}, "must be host:port"),
        ({"listeners": "://h:1"}, "no name"),
        ({"listeners": "SSL://h:1,SSL://h:2"}, "names SSL twice"),
        ({"listeners": "SSL://h:1,PLAINTEXT://h:1"}, "names h:1 twice"),
        ({"listeners": "OUTSIDE://h:1"}, "add OUTSIDE:PROTOCOL"),
        ({"listener_security_protocol_map": "A:TLS"}, "A:TLS must be NAME:PROTOCOL"),
        ({"listener_security_protocol_map": "SSL"}, "must be NAME:PROTOCOL"),
        ({"advertised_listeners": "SSL://h:1"}, "advertised.listeners names SSL"),
        ({"sasl_enabled_mechanisms": "GSSAPI"}, "must be some of PLAIN, SCRAM-SHA-256"),
        ({"sasl_enabled_mechanisms": " , "}, "must be some of"),
        ({"ssl_principal_mapping_rules": "RULE:x"}, "must be DEFAULT or RULE"),
    ],
)
def test_what_makes_no_listeners_is_refused_at_the_start(values: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_listeners(config(**values))


def security(protocol: str, **values: str) -> ListenerSecurity:
    made = config(listeners=f"{protocol}://h:1", **values)
    (listener,) = configured_listeners(made)
    return listener_security_of(listener, made, credentials(alice="secret"), lambda: "nonce")


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_door_asks_for_sasl_where_its_protocol_does(protocol: str) -> None:
    session = ClientSession.begin(security(protocol, ssl_client_auth="required"), "h", None)
    assert (session.sasl is not None) == protocol.startswith("SASL")
    assert session.is_authenticated != protocol.startswith("SASL")
    assert (str(session.principal), session.listener) == ("User:ANONYMOUS", protocol)


def test_a_certificate_that_nobody_is_named_by_is_not_let_in() -> None:
    for rules in ("RULE:^CN=admin$/admin/", "RULE:.*/ANONYMOUS/", "RULE:.*/quorate-cluster-admin/"):
        made = security("SSL", ssl_client_auth="required", ssl_principal_mapping_rules=rules)
        with pytest.raises(UnmappedCertificate):
            made.principal_of_certificate(certificate("alice"))


def certificate(name: str) -> bytes:
    from tests.support.certificates import self_signed

    return self_signed(name)
