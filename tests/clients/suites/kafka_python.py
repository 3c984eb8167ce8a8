"""kafka-python's integration tests, with the client of the same checkout.

They are written for a broker that they start themselves: one, with the id 0. So they run twice,
against three brokers and against one; what fails with three is known to ask for one.
"""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.clients.suites.cases import Case
from tests.clients.suites.pytest_suite import on_clusters, run_pytest
from tests.clients.suites.selection import Selection

TESTS: Final = tuple(
    f"test/integration/test_{part}_integration.py" for part in ("admin", "consumer", "producer")
)
"""Not those of TLS and SASL: they ask for a broker that they configured themselves."""

KAFKA_VERSION: Final = "4.2.0"
"""The version that the client infers from the APIs that are served, and the tests compare with."""

CONFIG: Final[Mapping[str, object]] = {
    "num.partitions": 4,
    "offsets.topic.num.partitions": 2,
    "group.min.session.timeout.ms": 1000,
    "group.initial.rebalance.delay.ms": 0,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": True,
}
"""As in the suite's own template of a broker's configuration."""

_BROKERS: Final = (3, 1)
_TEST_TIMEOUT_S: Final = 120
"""One test waits for a timeout of 60 s."""


def cases(source: Path, selection: Selection) -> Iterator[Case]:
    """Run the tests of the checkout ``source`` against three brokers and against one; takes some
    minutes."""
    return on_clusters(_BROKERS, CONFIG, lambda at: _run(source, at.bootstrap, selection.only))


def _run(source: Path, bootstrap: str, only: str) -> list[Case]:
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            "KAFKA_URI": f"kafka://{bootstrap.partition(',')[0]}",
            "KAFKA_VERSION": KAFKA_VERSION,
            "KAFKA_ROOT": folder,
        }
        return run_pytest(source, ["-k", only, *TESTS], environment, _TEST_TIMEOUT_S)
