"""aiokafka's tests against a broker, with the installed client (the checkout is of its version).

The suite starts one broker in Docker; ``aiokafka_plugin`` gives it ours instead. So it runs twice,
against three brokers and against one. What asks for its broker's own TLS and SASL is left out.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.clients.suites.cases import Case
from tests.clients.suites.pytest_suite import on_clusters, run_pytest
from tests.clients.suites.selection import Selection

TESTS: Final = tuple(
    f"tests/test_{part}.py"
    for part in (
        *("admin", "client", "conn", "consumer", "coordinator", "pep492", "producer"),
        *("sender", "transactional_consumer", "transactional_producer"),
    )
)
"""All that ask a broker, but for test_sasl: that is about mechanisms of the suite's own broker."""

CONFIG: Final[Mapping[str, object]] = {
    "auto.create.topics.enable": True,
    "num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
}
"""As in the suite's image."""

_BROKERS: Final = (3, 1)

_IMAGE: Final = "aiolibs/kafka:2.13_2.8.1"
"""The newest one that the suite knows; nothing is pulled."""

_TEST_TIMEOUT_S: Final = 120


def cases(source: Path, selection: Selection) -> Iterator[Case]:
    """Run the tests of the checkout ``source`` against three brokers and against one; takes some
    minutes."""
    return on_clusters(_BROKERS, CONFIG, lambda at: _run(source, at.bootstrap, selection.only))


def _run(source: Path, bootstrap: str, only: str) -> list[Case]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        shutil.copytree(source / "tests", folder / "tests")
        shutil.copy(Path(__file__).with_name("aiokafka_plugin.py"), folder)
        words = ["-m", "not ssl", "-p", "aiokafka_plugin", "--docker-image", _IMAGE, "-k", only]
        environment = {"SUITE_BOOTSTRAP": bootstrap.partition(",")[0]}
        return run_pytest(folder, [*words, *TESTS], environment, _TEST_TIMEOUT_S)
