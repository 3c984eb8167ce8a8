"""What helps a person at a terminal: suggestions, completion, tables, prompts, fast refusals."""

import io
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import click
import pytest

from quorate.cli.cluster.cluster_file import ClusterFile, Shape, read_cluster_file
from quorate.cli.main import run
from quorate.cli.reachable import require_reachable
from quorate.cli.records import line_input
from quorate.cli.tables import print_rich_table, print_table
from quorate.cli.topics.troubled_partitions import only_troubled, troubled
from quorate.client.results import PartitionInfo, PartitionName, TopicInfo
from quorate.common.configuration import ConfigError
from tests.support.cli import command
from tests.unit.cli.test_status import FINE, ORDERS


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        (("topic",), "'topics' or 'top'"),
        (("topics", "creat"), "'create'"),
        (("quorum", "add-votr"), "'add-voter'"),
    ],
)
def test_a_mistyped_command_is_answered_with_the_one_that_was_meant(
    words: tuple[str, ...], suggested: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert f"Did you mean {suggested}?" in capsys.readouterr().err


def test_nothing_is_suggested_where_nothing_is_near(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["xyzzy"]) == 2
    assert "Did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_the_code_that_completes(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["completion", shell]) == 0
    assert f"_QUORATE_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_commands_of_every_level_are_completed() -> None:
    def completed(words: str, word: int) -> list[str]:
        done = subprocess.run(
            command(),
            env={"_QUORATE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": f"{word}"}
            | {"PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert completed("quorate top", 1) == ["top", "topics"]
    assert completed("quorate topics de", 2) == ["delete", "describe"]


def test_an_address_where_nobody_listens_is_refused_at_once() -> None:
    begin = time.monotonic()
    with pytest.raises(click.ClickException, match=r"127\.0\.0\.1:1: Connection refused"):
        require_reachable("127.0.0.1:1,127.0.0.1:2")
    assert time.monotonic() - begin < 3
    with pytest.raises(click.UsageError, match="is not host:port"):
        require_reachable("127.0.0.1:nine")


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "list"),
        ("groups", "list"),
        ("consume", "--topic", "t"),
        ("produce", "--topic", "t"),
        ("reassign", "--list"),
        ("top", "--count", "1"),
    ],
)
def test_no_command_is_silent_for_long_when_no_broker_is_there(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--bootstrap-server", "127.0.0.1:1"]) == 1
    assert "no broker can be reached (127.0.0.1:1" in capsys.readouterr().err


def test_tables_are_plain_when_piped_and_drawn_on_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [("[red]a\x1b[2J", "7"), ("b", "12")]
    print_table(("name", "lag"), rows)
    plain = capsys.readouterr().out.splitlines()
    assert plain == ["name           lag", "[red]a\\x1b[2J    7", "b               12"]
    print_table(("name",), [], none="no groups")
    assert capsys.readouterr().out == "no groups\n"
    terminal = io.StringIO()
    print_rich_table(("name", "lag"), rows, terminal)
    drawn = terminal.getvalue()
    assert "[red]a\\x1b[2J" in drawn, "a cell is neither markup nor a command"
    assert "───" in drawn


def test_a_person_is_shown_a_prompt_for_each_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal(io.BytesIO(b"one\ntwo\n")))
    assert list(line_input.input_lines()) == [b"one\n", b"two\n"]
    assert capsys.readouterr().err == ">>>\n"


def test_only_partitions_in_trouble_are_shown() -> None:
    def topic(name: str) -> TopicInfo:
        partitions = tuple(
            PartitionInfo(partition=n, leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
            for n in (0, 1)
        )
        return TopicInfo(name=name, topic_id=bytes(16), partitions=partitions)

    names = {ORDERS, PartitionName(topic="gone", partition=0)}
    (found,) = only_troubled([topic("orders"), topic("bills")], names)
    assert [one.partition for one in found.partitions] == [0]
    status = replace(FINE, offline_partitions=(ORDERS,))
    assert troubled(status, {"unavailable_partitions": True}) == {ORDERS}
    assert troubled(status, {"under_replicated_partitions": True}) == set()


def test_the_file_of_a_cluster_says_its_shape_and_its_settings(tmp_path: Path) -> None:
    path = tmp_path / "quorate.toml"
    path.write_text(
        'brokers = 2\nport = 0\ndata = "here"\n[set]\n"log.flush" = "os"\nlog.segment.bytes = 5\n'
    )
    assert read_cluster_file(path) == ClusterFile(
        Shape(brokers=2, port=0),
        tmp_path / "here",
        {"log.flush": "os", "log.segment.bytes": 5},
    )


def test_without_a_file_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_cluster_file(None) == ClusterFile()
    (tmp_path / "quorate.toml").write_text("quorum = 1\n")
    assert read_cluster_file(None).shape == Shape(voters=1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("broker = 2\n", "unknown key 'broker': did you mean brokers"),
        ("brokers = 0\n", "brokers=0 must be from 1 to 100"),
        ('brokers = "3"\n', "brokers='3' must be a number"),
        ("data = 3\n", "data=3 must be a text"),
        ('set = "x"\n', "set='x' must be a table"),
    ],
)
def test_a_file_of_a_cluster_that_is_wrong_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "quorate.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        read_cluster_file(path)
