"""Kafka's own compiled client tests, run by a small Java program that asks for clusters of ours.

Maven fetches the tests and what they need; ``java/SuiteRunner.java`` is compiled against that. It
prints ``CLUSTER brokers key=value…`` before a test, is answered ``READY bootstrap`` or ``REFUSED
why``, and prints ``RESULT`` after it. One cluster runs at a time, and
each test has its own: tests of a class create topics of the same name.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final, cast
from zipfile import ZipFile

from quorate.cluster.local_cluster_errors import LocalClusterError
from quorate.cluster.settings import check_settings
from quorate.common.configuration import ConfigError
from tests.clients.suites.cases import Case, Result
from tests.clients.suites.clusters import suite_cluster

CONFIG: Final[Mapping[str, object]] = {"group.initial.rebalance.delay.ms": 0}

_JAVA: Final = Path(__file__).with_name("java")
_TESTS_JAR: Final = "kafka-clients-integration-tests-"


def missing_tool() -> str | None:
    """The first tool that the suite needs and this machine has not."""
    return next((tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None), None)


def run(only: str) -> Iterator[Case]:
    """Runs the tests whose ``Class.method`` contains ``only``, each on a cluster as it asks."""
    with tempfile.TemporaryDirectory(prefix="quorate-kafka-java-") as made, ExitStack() as stack:
        folder = Path(made)
        class_path = _class_path(folder)
        sources = [str(path) for path in _JAVA.glob("*.java")]
        subprocess.run(["javac", "-d", made, "-cp", class_path, *sources], check=True)
        runner = stack.enter_context(
            subprocess.Popen(
                ["java", "-cp", f"{made}:{class_path}", "SuiteRunner", only, *_classes(class_path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        )
        stack.callback(runner.kill)
        yield from _answer(cast(IO[str], runner.stdout), cast(IO[str], runner.stdin))


def _answer(said: IO[str], answers: IO[str]) -> Iterator[Case]:
    with ExitStack() as cluster:
        left_out = ""
        for line in said:
            kind, _, rest = line.rstrip("\n").partition("\t")
            if kind == "RESULT":
                result, name, reason = rest.split("\t")
                yield Case(name, cast(Result, result), reason + left_out)
            elif kind == "CLUSTER":
                try:
                    cluster.close()
                    brokers, *settings = rest.split("\t")
                    config, left_out = _settings(settings)
                    started = cluster.enter_context(suite_cluster(int(brokers), config))
                    answer = f"READY\t{started.bootstrap}"
                except (ConfigError, LocalClusterError, OSError) as error:
                    answer = "REFUSED\t" + " ".join(str(error).split())
                answers.write(answer + "\n")
                answers.flush()


def _settings(pairs: Sequence[str]) -> tuple[Mapping[str, object], str]:
    """What a broker of ours takes of the test's properties, and a note that names the others."""
    config, refused = dict(CONFIG), []
    for key, _, value in (pair.partition("=") for pair in pairs):
        try:
            check_settings({key: value})
        except ConfigError:
            refused.append(key)
        else:
            config[key] = value
    return config, f" (without {', '.join(refused)})" if refused else ""


def _class_path(folder: Path) -> str:
    output = folder / "class-path"
    goal = ["dependency:build-classpath", f"-Dmdep.outputFile={output}"]
    subprocess.run(["mvn", "-q", "-B", "-f", str(_JAVA / "pom.xml"), *goal], check=True)
    return output.read_text().strip()


def _classes(class_path: str) -> list[str]:
    jar = next(path for path in class_path.split(":") if Path(path).name.startswith(_TESTS_JAR))
    with ZipFile(jar) as opened:
        names = [name for name in opened.namelist() if name.endswith("Test.class")]
    return sorted(name.removesuffix(".class").replace("/", ".") for name in names)
