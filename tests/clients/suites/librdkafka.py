"""librdkafka's tests against a broker, each in a process of its own.

Those that need none (``-l``) say nothing about brokers and are left out.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.clients.suites.cases import Case, Result
from tests.clients.suites.clusters import suite_cluster
from tests.clients.suites.selection import Selection

KAFKA_VERSION: Final = "4.0.0"
"""The version of Kafka that most tests are told."""

_OTHER_VERSIONS: Final = {"0081_admin": "3.9.0"}
"""From 4.0 on it asks for the configuration of groups (KIP-848), which there is none of here."""

_SHARED: Final = "_share_"
"""A part of the names of the tests of share groups (KIP-932), which 4.2 has."""
_SHARED_VERSION: Final = "4.2.0"
_QUICK: Final = "-Q"
"""Fewer messages. Of the tests of share groups it would leave out nearly all parts."""

CONFIG: Final[Mapping[str, object]] = {
    "auto.create.topics.enable": True,
    "num.partitions": 4,
    "default.replication.factor": 3,
    "log.cleaner.backoff.ms": 3000,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": True,
    "group.share.min.record.lock.duration.ms": 1000,
}
"""As in the suite's default scenario; and the cleaner, which a test waits for, looks more often."""

_NAME: Final = re.compile(r"^ *_TEST\((0\d{3}_\w+),(?!\s*TEST_F_LOCAL\b)", re.MULTILINE)
"""The names of tests that may need a broker. The runner chooses tests by their numbers, so those of
the same number that need none would have the others run again."""
_TEST_TIMEOUT_S: Final = 600
_PATIENCE: Final = "test.timeout.multiplier=3"
"""Tests give themselves little time, for a machine that does nothing else."""
_STATES: Final[Mapping[str, Result]] = {
    "PASSED": "passed",
    "FAILED": "failed",
    "SKIPPED": "skipped",
}
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_SUMMARY: Final = re.compile(
    r"^\| (\w+) +\| +(PASSED|FAILED|SKIPPED) \| +[0-9.]+s \| *(.*?) *$", re.MULTILINE
)
_LOCAL: Final = "Filtered due to negative test flags"

_TOOLS: Final = {
    "kafka-acls.sh": 'exec {cli} acls "$@"\n',
    "kafka-topics.sh": (
        'for word in "$@"; do\n'
        "  shift\n"
        '  case "$word" in --create|--alter|--delete) verb=${{word#--}};; '
        '*) set -- "$@" "$word";; esac\n'
        "done\n"
        'exec {cli} topics "$verb" "$@"\n'
    ),
    "kafka-run-class.sh": 'exec java -cp "$CLASSPATH:$KAFKA_PATH/libs/*" "$@"\n',
}
"""What the tests call of Kafka's command line, in terms of ours; and Kafka's own Java client, for
those that ask for it, where ``KAFKA_HOME`` has it (its ``libs``)."""


def test_names(source: Path) -> list[str]:
    """Return the tests of the checkout that may need a broker, in its order, without those from
    8000 on, which are run by hand."""
    return list(dict.fromkeys(_NAME.findall((source / "tests" / "test.c").read_text())))


def cases(source: Path, selection: Selection, *, quick: bool = True) -> Iterator[Case]:
    """Run tests of a checkout that has been built, against three brokers."""
    names, left = selection.split(test_names(source))
    yield from left
    with suite_cluster(3, CONFIG) as cluster:
        yield from run(source, cluster.bootstrap, names, quick=quick)


def run(
    source: Path, bootstrap: str, names: Iterable[str], *, quick: bool = True
) -> Iterator[Case]:
    """Run tests of a checkout that has been built, and tell of each when it has ended.

    ``quick``: with fewer messages, and without the tests that shape sockets (``-Q -E``).
    """
    with tempfile.TemporaryDirectory() as folder:
        _write_tools(Path(folder))
        config = Path(folder) / "test.conf"
        config.write_text(f"bootstrap.servers={bootstrap}\n{_PATIENCE}\n")
        environment = dict(os.environ)
        environment |= {
            "RDKAFKA_TEST_CONF": str(config),
            "KAFKA_PATH": folder,
            "BROKERS": bootstrap,
            "LD_LIBRARY_PATH": f"{source / 'src'}{os.pathsep}{source / 'src-cpp'}",
        }
        for name in names:
            begin = time.monotonic()
            options = [option for option in (_QUICK, "-E") if quick]
            if _SHARED in name:
                options = [option for option in options if option != _QUICK]
            case = _run_one(source, name, environment, options)
            if case is not None:
                yield replace(case, seconds=time.monotonic() - begin)


def _run_one(
    source: Path, name: str, environment: Mapping[str, str], options: Iterable[str]
) -> Case | None:
    """None: it needs no broker."""
    try:
        ended = subprocess.run(
            ["./test-runner", "-L", "-p1", *options],
            cwd=source / "tests",
            env={
                **environment,
                "TESTS": name,
                "TEST_KAFKA_VERSION": _version_for(name),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_TEST_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Case(name, "failed", f"did not end in {_TEST_TIMEOUT_S} s")
    return case_of(name, ended.stdout.decode(errors="replace"))


def _version_for(name: str) -> str:
    if _SHARED in name:
        return _SHARED_VERSION
    return _OTHER_VERSIONS.get(name, KAFKA_VERSION)


def case_of(name: str, output: str) -> Case | None:
    """From the summary at the end of what the test runner says. None: the test needs no broker."""
    for found, state, reason in _SUMMARY.findall(_COLOURS.sub("", output)):
        if found == name:
            return None if reason == _LOCAL else Case(name, _STATES[state], reason)
    return Case(name, "failed", "its process ended without a summary")


def _write_tools(folder: Path) -> None:
    cli = f"{sys.executable} -m quorate.cli.main"
    (folder / "bin").mkdir()
    for name, script in _TOOLS.items():
        tool = folder / "bin" / name
        tool.write_text("#!/bin/sh\n" + script.format(cli=cli))
        tool.chmod(0o755)
    if home := os.environ.get("KAFKA_HOME"):
        (folder / "libs").symlink_to(Path(home) / "libs")
