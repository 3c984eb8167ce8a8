"""Spark over the three hosts of the deployment guide: a master, two workers, and a driver besides.

Host 1 has Spark's standalone master, hosts 2 and 3 a worker each, beside the voter and the broker
of each host. The driver is on the host of administrators and clients.
"""

import os
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

from quorate.spark.java_home import java_home
from tests.support.network_lab import NetworkLab, address_of
from tests.support.three_hosts import CONSOLE, HOSTS
from tests.support.waiting import wait_until

MASTER_HOST: Final = HOSTS[0]
WORKER_HOSTS: Final = HOSTS[1:]
HOST_VARIABLE: Final = "QUORATE_TEST_HOST"
"""The environment variable by which executors know their host."""

_START_TIMEOUT_S: Final = 240.0
_MASTER_PORT: Final = 7077
_DEPLOY: Final = "org.apache.spark.deploy"
_SMALL_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Without the optimizing compiler and the parallel collector, which cost more than they bring."""


class SparkHosts:
    """Spark's processes on the hosts; a context manager, which ends them."""

    def __init__(self, lab: NetworkLab, folder: Path, *, cores: int = 1) -> None:
        """``cores`` of each worker."""
        self._lab = lab
        self._folder = folder
        self._cores = cores
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def master(self) -> str:
        """The master's URL."""
        return f"spark://{address_of(MASTER_HOST)}:{_MASTER_PORT}"

    @property
    def driver_settings(self) -> dict[str, str]:
        """The settings by which executors reach the session, and by which it is small."""
        address = address_of(CONSOLE)
        return {
            "spark.driver.host": address,
            "spark.driver.bindAddress": address,
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": _SMALL_JVM,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": _SMALL_JVM,
        }

    def __enter__(self) -> Self:
        try:
            self._start_all()
        except BaseException:
            self._end_all()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end_all()

    def start_worker(self, host: int) -> None:
        """Start the worker of a host, and wait until the master knows it."""
        before = self._registered()
        listens = ("--host", address_of(host), "--webui-port", "0")
        resources = ("--cores", str(self._cores), "--memory", "1g")
        self._start(_worker(host), host, f"{_DEPLOY}.worker.Worker", *listens, *resources)
        self._wait(lambda: self._registered() > before, f"the worker of host {host}")

    def is_running(self, host: int) -> bool:
        """Whether the host has a worker."""
        return _worker(host) in self._processes

    def kill_worker(self, host: int) -> None:
        """kill -9 the worker and the executors that it has started, all at once."""
        _kill_group(self._processes.pop(_worker(host)))

    def logs(self) -> str:
        """The end of what each process has said, for a failing test."""
        return "\n".join(
            f"--- {path.stem}\n{path.read_text(errors='replace')[-3_000:]}"
            for path in sorted(self._folder.glob("*.log"))
        )

    # -- processes -------------------------------------------------------------------------------

    def _start_all(self) -> None:
        self._folder.mkdir()
        listens = ("--host", address_of(MASTER_HOST), "--webui-port", "0")
        port = ("--port", str(_MASTER_PORT))
        self._start("master", MASTER_HOST, f"{_DEPLOY}.master.Master", *listens, *port)
        self._wait(lambda: "Starting Spark master at" in self._said("master"), "the master")
        for host in WORKER_HOSTS:
            self.start_worker(host)

    def _start(self, name: str, host: int, *arguments: str) -> None:
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        home = Path(spec.origin).parent
        command = [str(home / "bin" / "spark-class"), *arguments]
        if name != "master":
            command.append(self.master)
        with (self._folder / f"{name}.log").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                self._lab.command(host, command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=self._environment(name, host, home),
                start_new_session=True,
            )

    def _environment(self, name: str, host: int, home: Path) -> dict[str, str]:
        java = java_home(os.environ, self._folder)
        return {
            **os.environ,
            **({"JAVA_HOME": java} if java else {}),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": address_of(host),
            "SPARK_WORKER_DIR": str(self._folder / name),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _SMALL_JVM,
            "PYSPARK_PYTHON": sys.executable,
            HOST_VARIABLE: str(host),
        }

    def _end_all(self) -> None:
        while self._processes:
            _, process = self._processes.popitem()
            _kill_group(process)

    def _registered(self) -> int:
        return len(re.findall(r"Registering worker \S+", self._said("master")))

    def _said(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def _wait(self, holds: object, what: str) -> None:
        assert callable(holds)
        wait_until(holds, lambda: f"{what}\n{self.logs()}", timeout_s=_START_TIMEOUT_S)


def _worker(host: int) -> str:
    return f"worker-{host}"


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    """A worker's executors are in its group; their Pythons end when their standard input does."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
