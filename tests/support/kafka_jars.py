"""Gets Apache Kafka's jars: from ``KAFKA_HOME``, or by Maven into a folder of the user's cache.

``python -m tests.support.kafka_jars`` prints the folder, for the benches that want it as
``KAFKA_HOME``.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Final

RELEASE: Final = "4.3.1"
_MAVEN_TIMEOUT_S: Final = 300
_POM: Final = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>kafka-home</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{RELEASE}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId>
      <version>{RELEASE}</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId><version>2.25.4</version></dependency>
  </dependencies>
</project>
"""
"""The brokers, the tools that measure them, and a logger, which without a configuration prints
errors alone."""


class NoKafka(Exception):
    """Kafka cannot be run here. The message says what is missing."""


def kafka_home() -> Path:
    """Return the folder whose ``libs`` has Kafka's jars; fetch them if nobody has yet.

    Raises:
        NoKafka: there is no Java, no Maven or no jar to be had.
    """
    if home := os.environ.get("KAFKA_HOME"):
        return Path(home)
    _require("java")
    cached = cache_folder() / f"kafka-{RELEASE}-{zlib.crc32(_POM.encode()):08x}"
    if not cached.is_dir():
        _require("mvn")
        _fetch(cached, _POM, f"Kafka {RELEASE}")
    return cached


def jars_of(name: str, pom: str) -> Path:
    """Return the folder with the jars that a POM needs at run time; fetch them if nobody has yet.

    Raises:
        NoKafka: there is no Maven, or no jar to be had.
    """
    cached = cache_folder() / f"{name}-{zlib.crc32(pom.encode()):08x}"
    if not cached.is_dir():
        _require("mvn")
        _fetch(cached, pom, name)
    return cached / "libs"


def cache_folder() -> Path:
    """Return the folder of the user's cache that is ours."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "quorate")


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise NoKafka(f"Kafka {RELEASE} needs {program} on the PATH, or KAFKA_HOME")


def _fetch(cached: Path, pom: str, what: str) -> None:
    """Fill a folder next to ``cached`` and rename it: others see all jars, or none."""
    cached.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cached.parent) as temporary:
        folder = Path(temporary, "home")
        folder.mkdir()
        (folder / "pom.xml").write_text(pom)
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=libs"]
        done = subprocess.run(
            ["mvn", "-q", "-B", *goal],
            cwd=folder,
            capture_output=True,
            timeout=_MAVEN_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise NoKafka(f"Maven has no jars of {what}: {done.stdout.decode()[-500:]}")
        try:
            folder.rename(cached)
        except OSError:
            if not cached.is_dir():  # Another process was not faster: this is an error.
                raise


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{kafka_home()}\n")
    except NoKafka as missing:
        sys.exit(str(missing))
