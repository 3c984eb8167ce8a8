"""The command line itself: help, usage errors, exit codes, and what it must not load."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from quorate.cli import shared_options as options
from quorate.cli.main import COMMANDS, cli, run
from quorate.client.errors import RequestFailed
from quorate_proto.v1 import errors_pb2


def every_command() -> Iterator[tuple[str, ...]]:
    context = click.Context(cli)
    for name in COMMANDS:
        yield (name,)
        command = cli.get_command(context, name)
        if isinstance(command, click.Group):
            for child in command.list_commands(context):
                yield (name, child)


@pytest.mark.parametrize("words", [(), *every_command()], ids=" ".join)
def test_every_command_has_help_with_an_example(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--help"]) == 0
    assert "Example" in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_the_group_says_what_the_command_says(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    own = (command.help or "").strip().partition("\n")[0]
    assert COMMANDS[name][1].split()[0] == own.split()[0]


def test_help_loads_neither_server_nor_client_libraries() -> None:
    program = (
        "import sys\n"
        "from quorate.cli.main import run\n"
        "run(['--help'])\n"
        "heavy = {'grpc', 'google.protobuf', 'confluent_kafka', 'msgspec', 'broker', 'quorum'}\n"
        "sys.exit(repr(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nope"]) == 2
    assert "nope" in capsys.readouterr().err


def test_without_a_cluster_the_way_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["status"]) == 2
    assert "--bootstrap-server" in capsys.readouterr().err


def test_data_folder_without_a_running_cluster_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["topics", "list", "--data", str(tmp_path)]) == 1
    assert f"no cluster runs in {tmp_path}" in capsys.readouterr().err


def test_unreachable_bootstrap_server_is_one_line_that_names_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["status", "--bootstrap-server", "127.0.0.1:1", "--timeout-ms", "1"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "127.0.0.1:1" in error


def test_both_ways_to_name_a_cluster_contradict(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--bootstrap-server", "h:1", "--data", "d"]) == 2
    assert "not both" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("log.flus=os", "did you mean log.flush?"),
        ("log.flush=never", "must be one of sync, os"),
        ("broker.id=7", "--brokers"),
        ("log.flush", "must be key=value"),
    ],
)
def test_up_refuses_a_wrong_setting_before_it_touches_the_folder(
    setting: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "data"
    assert run(["up", "--data", str(folder), "--set", setting]) == 1
    assert said in capsys.readouterr().err
    assert not folder.exists()


def test_up_refuses_a_folder_that_holds_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    assert run(["up", "--data", str(tmp_path), "--port", "0"]) == 1
    assert f"{tmp_path} is not empty and holds no Quorate cluster" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_down_of_a_folder_without_a_cluster_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["down", "--data", str(tmp_path)]) == 1
    assert "holds no Quorate cluster" in capsys.readouterr().err


def test_ctrl_c_ends_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(self: click.Group, ctx: click.Context) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(click.Group, "invoke", interrupted)
    assert run(["status"]) == 130
    assert capsys.readouterr().err == ""


def test_every_admin_client_of_a_command_is_told_how_to_prove_itself() -> None:
    """Or --command-config would be taken and not honoured."""
    folder = Path(options.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("AdminClient"):
                given = {keyword.arg for keyword in node.keywords}
                assert "options" in given, f"{path}, line {node.lineno}"


@pytest.mark.parametrize(
    ("code", "has_advice"),
    [(errors_pb2.CLUSTER_AUTHORIZATION_FAILED, True), (errors_pb2.INVALID_CONFIG, False)],
)
def test_who_has_no_right_is_told_what_to_do(
    code: int,
    has_advice: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refused(self: click.Group, ctx: click.Context) -> None:
        raise RequestFailed(code, "User:bob from 1.2.3.4 …")

    monkeypatch.setattr(click.Group, "invoke", refused)
    assert run(["status"]) == 1
    told = capsys.readouterr().err
    assert ("User:bob from 1.2.3.4 …" in told, "quorate acls --add" in told) == (True, has_advice)
    assert told.count("\n") == 1
