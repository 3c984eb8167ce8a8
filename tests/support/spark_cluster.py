"""A standalone Spark cluster of real processes: a master and workers of one core each."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.waiting import wait_until

START_TIMEOUT_S = 240.0
_DEPLOY = "org.apache.spark.deploy"


@contextmanager
def spark_cluster(
    spark_home: Path, environment: Mapping[str, str], folder: Path, *, workers: int
) -> Iterator[str]:
    """The master's URL, once all workers have registered; all are gone afterwards."""
    folder.mkdir()
    with ExitStack() as processes:

        def start(name: str, *arguments: str) -> Path:
            log = folder / f"{name}.log"
            command: list[str | Path] = [spark_home / "bin" / "spark-class", *arguments]
            with log.open("w") as output:
                process = subprocess.Popen(
                    command,
                    env={**environment, "SPARK_WORKER_DIR": str(folder / name)},
                    cwd=folder,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            processes.callback(_end, process)
            return log

        listens = ("--host", "127.0.0.1", "--webui-port", "0")
        log = start("master", f"{_DEPLOY}.master.Master", *listens, "--port", "0")
        (url,) = _wait_for(log, r"Starting Spark master at (spark://\S+)", 1)
        for number in range(workers):
            resources = ("--cores", "1", "--memory", "1g")
            start(f"worker-{number}", f"{_DEPLOY}.worker.Worker", *listens, *resources, url)
        _wait_for(log, r"Registering worker (\S+)", workers)
        yield url


def _wait_for(log: Path, pattern: str, count: int) -> list[str]:
    def found() -> list[str] | None:
        said = re.findall(pattern, log.read_text())
        return said if len(said) >= count else None

    return wait_until(
        found,
        lambda: f"{count} of {pattern!r} in {log}:\n{log.read_text()}",
        timeout_s=START_TIMEOUT_S,
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, 9)
        process.wait()
