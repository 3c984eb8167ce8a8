"""aiokafka's tests against a broker, with the installed client (the checkout is of its version).

The suite starts one broker in Docker; ``aiokafka_plugin`` gives it ours instead. So it runs twice,
against three brokers and against one. What asks for its broker's own TLS and SASL is left out.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.clients.suites.cases import Case
from tests.clients.suites.kafka_python import cases_of, import_path

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

ASKS_FOR_ONE_BROKER: Final = {
    "test_metadata": "there is to be one broker",
    "test_describe_cluster": "there is to be one broker",
    "test_describe_configs_broker": "there is to be one broker",
    "test_concurrent_send_on_different_connection_groups": "any broker is to lead the partition",
    "test_no_concurrent_send_on_connection": "any broker is to lead the partition",
    "test_manual_subscribe_pattern": "its pattern matches the topic of the test before, too",
}
"""May fail with three brokers, Kafka's own as well."""

_IMAGE: Final = "aiolibs/kafka:2.13_2.8.1"
"""The newest one that the suite knows; nothing is pulled."""

_TEST_TIMEOUT_S: Final = 120


def run(source: Path, bootstrap: str) -> list[Case]:
    """Runs the tests of the checkout ``source``; takes some minutes."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        shutil.copytree(source / "tests", folder / "tests")
        shutil.copy(Path(__file__).with_name("aiokafka_plugin.py"), folder)
        report = folder / "report.xml"
        options = ["-q", "-W", "ignore", "-m", "not ssl", "--show-capture=no"]
        without = ["no:randomly", "no:quorate", "no:cacheprovider"]
        subprocess.run(
            [
                *(sys.executable, "-m", "pytest", *options, "-p", "aiokafka_plugin"),
                *(word for name in without for word in ("-p", name)),
                *("--docker-image", _IMAGE, f"--timeout={_TEST_TIMEOUT_S}"),
                *(f"--junitxml={report}", *TESTS),
            ],
            cwd=folder,
            env={
                **os.environ,
                "SUITE_BOOTSTRAP": bootstrap.partition(",")[0],
                "PYTHONPATH": os.pathsep.join(import_path(folder)),
            },
            stdout=subprocess.DEVNULL,
            check=False,
        )
        return list(cases_of(report.read_text()))
