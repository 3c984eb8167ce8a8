"""The limits on the number of connections, of all clients and of one address."""

import pytest

from quorate.broker.config.spec import BROKER_SPEC
from quorate.broker.kafka.connection.connection_limits import ConnectionCounts
from quorate.common.configuration import ConfigError

REQUIRED = {"broker.id": 1, "log.dir": "x", "quorum.bootstrap.servers": "x:1"}
LIMITS = {"max.connections": 9, "max.connections.per.ip": 2}
OVERRIDES = "max.connections.per.ip.overrides"


def counts(**overrides: object) -> ConnectionCounts:
    return ConnectionCounts(BROKER_SPEC.parse({**REQUIRED, **LIMITS, **overrides}))


@pytest.mark.parametrize(
    ("connections", "address", "of_it", "exceeded"),
    [
        (9, "10.0.0.9", 2, None),
        (10, "10.0.0.9", 1, "max.connections=9"),
        (9, "10.0.0.9", 3, "max.connections.per.ip=2"),
        (9, "10.0.0.1", 5, None),
        (9, "10.0.0.1", 6, f"{OVERRIDES}=10.0.0.1:5"),
        (9, "::1", 0, None),
        (9, "::1", 1, f"{OVERRIDES}=::1:0"),
    ],
)
def test_an_address_may_have_a_number_of_its_own(
    connections: int, address: str, of_it: int, exceeded: str | None
) -> None:
    limits = counts(**{OVERRIDES: "10.0.0.1:5, [::1]:0"})
    assert limits.exceeded(connections, address, of_it) == exceeded


@pytest.mark.parametrize("wrong", ["10.0.0.1", "10.0.0.1:", ":5", "10.0.0.1:x", "a:1,,b:2"])
def test_overrides_that_say_nothing_are_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match=OVERRIDES):
        counts(**{OVERRIDES: wrong})
