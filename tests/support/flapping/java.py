"""Producers of kafka-clients, the Java client, under an ISR that flaps."""

import os
import shutil
import subprocess
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.flapping.numbers import PARTITIONS, UNANSWERED_MAX
from tests.support.flapping.story import Lane, Sent, Story

KAFKA_CLIENTS: Final = "4.3.1"
PATIENCE_S = 120.0

_SOURCE: Final = Path(__file__).with_name("FlappingLoad.java")
_POM: Final = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>flapping</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId>
      <version>{KAFKA_CLIENTS}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId>
      <version>1.7.36</version></dependency>
  </dependencies>
</project>
"""


def java_class_path(folder: Path) -> str | None:
    """Compile the Java producer into ``folder`` with jars from Maven, and return its class path.

    None where there is no JDK, no Maven, or no jar to be had.
    """
    if not (shutil.which("javac") and shutil.which("mvn")):
        return None
    (folder / "pom.xml").write_text(_POM)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=libs"]
    class_path = f"{folder / 'libs'}/*{os.pathsep}{folder}"
    for command in (
        ["mvn", "-q", "-B", *goal],
        ["javac", "-cp", class_path, "-d", str(folder), str(_SOURCE)],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=180, check=False)
        if done.returncode:
            return None
    return class_path


class JavaLoad:
    """Runs one producer in a process of its own until it is stopped."""

    def __init__(
        self,
        class_path: str,
        name: str,
        bootstrap: str,
        topics: Sequence[str],
        every_s: float,
        transactional: bool,
    ) -> None:
        self.name = name
        self.story = Story()
        self._command = [
            *("java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", class_path, "FlappingLoad"),
            *(name, bootstrap, ",".join(topics), str(int(every_s * 1e9))),
            *("true" if transactional else "false", str(PARTITIONS), str(UNANSWERED_MAX)),
        ]
        self._thread = threading.Thread(target=self._run, name=name)
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop producing, and wait until all is answered."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._thread.join(PATIENCE_S)
        if self._thread.is_alive():
            self._process.kill()
            self._thread.join()
            self.story.failures.append(f"{self.name} does not stop")
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _run(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        uncertain: dict[int, set[Sent]] = defaultdict(set)
        for line in self._process.stdout:
            word, _, rest = line.rstrip().partition(" ")
            if word == "failure":
                self.story.failures.append(rest)
                continue
            transaction, topic, partition, number = rest.split()
            sent = Sent(Lane(topic, int(partition), self.name), int(number))
            if word == "uncertain":
                uncertain[int(transaction)].add(sent)
            else:
                (self.story.acknowledged if word == "acknowledged" else self.story.aborted).add(
                    sent
                )
        self.story.uncertain.extend(frozenset(one) for one in uncertain.values())
