"""The wheel as users get it: in an environment of its own, and on a Spark cluster of its own."""

import json
import subprocess
import threading
import zipfile
import zlib
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest
from confluent_kafka import Producer

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster
from tests.support.guide import ROOT
from tests.support.installed_wheel import InstalledWheel, install_wheel
from tests.support.spark_cluster import spark_cluster
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_known, wait_until_whole

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.timeout(1800),
]

PROGRAMS = ROOT / "tests" / "spark" / "programs"
TOPIC = "orders"
PARTITIONS = 2
RECORDS = 16_000
"""Of each partition: 32 MB, more than all buffers on the way hold."""
REACH_TIMEOUT_S = 600.0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> InstalledWheel:
    return install_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=3) as running:
        fill(running)
        yield running


def value_at(partition: int, offset: int) -> bytes:
    return b"%d/%08d/" % (partition, offset) + bytes(2_000)


def fill(cluster: RunningCluster) -> None:
    with cluster.admin() as admin:
        for topic in (TOPIC, "copies"):
            new = NewTopic(name=topic, num_partitions=PARTITIONS, replication_factor=3)
            admin.create_topics([new])[0].raise_for_error()
            wait_until_known(cluster, topic, PARTITIONS)
    settings = {"acks": "all", "linger.ms": 20, "queue.buffering.max.messages": 0}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    for offset in range(RECORDS):
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, value_at(partition, offset), partition=partition)
        producer.poll(0)
    assert producer.flush(120) == 0


def checksum(partition: int) -> int:
    return sum(zlib.crc32(value_at(partition, offset)) for offset in range(RECORDS))


def test_the_wheel_holds_every_module_and_nothing_else(wheel: InstalledWheel) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    tracked = {Path(line) for line in listed.stdout.splitlines()}
    modules_of_ours = [path for path in tracked if path.suffix == ".py"]
    linked = ("quorum", "broker", "metadata_log")
    expected = {str(path) for path in modules_of_ours if path.parts[0] == "quorate"}
    expected |= {f"quorate/{path}" for path in modules_of_ours if path.parts[0] in linked}
    registering = {path for path in expected if "/pyspark_" in path}
    expected -= registering
    expected |= {path.partition("spark/")[2] for path in registering}
    with zipfile.ZipFile(wheel.wheel) as archive:
        modules = {name for name in archive.namelist() if name.endswith(".py")}
    assert {name for name in modules if not name.startswith("quorate_proto/")} == expected
    assert {"pyspark_quorate/__init__.py", "pyspark_quorate_metadata/__init__.py"} <= modules


def test_the_wheel_says_what_it_needs(wheel: InstalledWheel) -> None:
    with zipfile.ZipFile(wheel.wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("dist-info/METADATA"))
        told = Parser().parsestr(archive.read(name).decode())
        entries = archive.read(name.replace("METADATA", "entry_points.txt")).decode()
    assert told["Name"] == "quorate"
    assert told["Requires-Python"] == ">=3.11"
    assert told["License-Expression"] == "Apache-2.0"
    needs = told.get_all("Requires-Dist")
    assert needs is not None
    assert [need for need in needs if need.startswith("pyspark==") and "extra == 'spark'" in need]
    assert not [need for need in needs if need.startswith("pyspark") and ";" not in need]
    assert "quorate = quorate.cli.main:main" in entries


def test_pip_finds_nothing_missing_and_the_command_starts(wheel: InstalledWheel) -> None:
    assert "No broken requirements" in wheel.run("-m", "pip", "check")
    assert "Usage: quorate" in wheel.run(wheel.python.parent / "quorate", "--help")
    found = wheel.run("-c", "import quorate, quorate_proto, pyspark_quorate; print(quorate)")
    assert str(wheel.folder) in found


def test_the_formats_work_unregistered(
    wheel: InstalledWheel, cluster: RunningCluster, tmp_path: Path
) -> None:
    program = PROGRAMS / "unregistered.py"
    printed = wheel.run(program, cluster.bootstrap, TOPIC, "copies", str(tmp_path))
    told = json.loads(printed.splitlines()[-1])
    everything = [PARTITIONS * RECORDS, sum(map(checksum, range(PARTITIONS)))]
    assert told["read"] == everything
    assert told["streamed"] == everything
    assert set(told["topics"]) == {TOPIC, "copies"}
    assert told["package"].startswith(str(wheel.folder))


def test_d2_a_standalone_cluster_reads_on_when_a_leader_is_killed(
    wheel: InstalledWheel, cluster: RunningCluster, tmp_path: Path
) -> None:
    """Executors in processes of their own, with nothing but the wheel."""
    gate, printed = tmp_path / "gate", []
    gate.mkdir()
    with spark_cluster(
        wheel.spark_home, wheel.environment, tmp_path / "spark", workers=2
    ) as master:

        def query() -> None:
            program = PROGRAMS / "held_up.py"
            printed.append(wheel.run(program, master, cluster.bootstrap, TOPIC, str(gate)))

        driver = threading.Thread(target=query)
        driver.start()
        try:
            wait_until_reached(gate, driver)
            with cluster.admin() as admin:
                lost = admin.describe_topics([TOPIC])[0].partitions[0].leader
            cluster.kill_broker(lost)
        finally:
            (gate / "open").touch()
            driver.join()
    cluster.restart_broker(lost)
    wait_until_whole(cluster)
    rows = json.loads(printed[0].splitlines()[-1])
    executors = set()
    for partition, (number, *counts, where) in enumerate(rows):
        assert number == partition
        assert counts == [RECORDS, RECORDS, RECORDS - 1, checksum(partition)]
        (found,) = where
        executors.add(found.split()[0])
        assert found.split()[1].startswith(str(wheel.folder / "venv"))
    assert len(executors) == 2, "each executor has read a partition"


def wait_until_reached(gate: Path, driver: threading.Thread) -> None:
    def is_reached() -> bool:
        assert driver.is_alive(), "the query ended too early"
        return len(list(gate.glob("reached-*"))) >= PARTITIONS

    wait_until(is_reached, "rows of every partition", timeout_s=REACH_TIMEOUT_S)
