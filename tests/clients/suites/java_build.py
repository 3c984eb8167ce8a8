"""Kafka's compiled client tests and the program that runs them: fetched and compiled once.

Maven fetches the tests and what they need, and ``java/`` is compiled against that, into a folder of
the user's cache. Changed sources have another folder.
"""

import shutil
import subprocess
import tempfile
import zlib
from pathlib import Path
from typing import Final
from zipfile import ZipFile

from tests.support.kafka_jars import cache_folder

_SOURCES: Final = Path(__file__).with_name("java")
_TESTS_JAR: Final = "kafka-clients-integration-tests-"


class NotBuilt(Exception):
    """The tests cannot be run here. The message says what is missing."""


def class_path(*, may_fetch: bool = True) -> str:
    """Return the class path of the tests and of the program that runs them.

    Raises:
        NotBuilt: there is no Java, or nothing was fetched before and it may not be now.
    """
    _require("java")
    built = cache_folder() / f"kafka-java-suite-{_checksum():08x}"
    if not _is_whole(built):
        if not may_fetch:
            raise NotBuilt("not fetched yet: python -m tests.clients.suites kafka-java")
        _build(built)
    return _read(built)


def classes_of(path: str) -> list[str]:
    """Return the names of the classes with tests."""
    jar = next(one for one in path.split(":") if Path(one).name.startswith(_TESTS_JAR))
    with ZipFile(jar) as opened:
        names = [name for name in opened.namelist() if name.endswith("Test.class")]
    return sorted(name.removesuffix(".class").replace("/", ".") for name in names)


def _checksum() -> int:
    return zlib.crc32(b"".join(path.read_bytes() for path in sorted(_SOURCES.iterdir())))


def _is_whole(built: Path) -> bool:
    """Return whether all is there: Maven's own folder may have been emptied since."""
    return built.is_dir() and all(Path(one).exists() for one in _read(built).split(":"))


def _read(built: Path) -> str:
    return f"{built}:{(built / 'class-path').read_text().strip()}"


def _build(built: Path) -> None:
    """Fill a folder next to ``built`` and rename it: others see all of it, or nothing."""
    _require("mvn")
    _require("javac")
    built.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=built.parent) as temporary:
        folder = Path(temporary, "classes")
        folder.mkdir()
        output = folder / "class-path"
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={output}"]
        maven = ["mvn", "-q", "-B", "-f", str(_SOURCES / "pom.xml"), *goal]
        subprocess.run(maven, check=True, stdout=subprocess.DEVNULL)
        sources = [str(path) for path in _SOURCES.glob("*.java")]
        fetched = output.read_text().strip()
        subprocess.run(["javac", "-d", str(folder), "-cp", fetched, *sources], check=True)
        shutil.rmtree(built, ignore_errors=True)
        folder.rename(built)


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise NotBuilt(f"Kafka's tests need {program} on the PATH")
