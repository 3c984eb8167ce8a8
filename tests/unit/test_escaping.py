"""What clients chose reaches people's terminals, logs and metrics as text, and as nothing else."""

import asyncio
import io
import json
import logging
import re
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from quorate.broker.changes.audit_log import AuditLog
from quorate.cli import main as cli_main
from quorate.cli.output import echo, echo_json, echo_lines
from quorate.cli.records.record_output import as_json_line
from quorate.cli.tables import table
from quorate.cluster.local_cluster_errors import LocalClusterError
from quorate.common.escaping import EscapingFormatter, escaped, escaped_lines, json_text
from quorate.common.metrics.family import Family, MetricKind, Sample
from quorate.common.metrics.metrics_endpoint import exposition

NASTY = "a\x1b[2J\x1b]0;title\x07b\nmade up line\rc\t\x7f\x9bd\u202egpj.exe\u2028e\ud800f"
OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]"
)
"""Everything that a terminal obeys, but for line ends and tabs."""

texts = st.text(st.characters() | st.sampled_from(NASTY), max_size=30)


@given(texts)
def test_a_value_stays_on_its_line_and_commands_nothing(text: str) -> None:
    shown = escaped(text)
    assert not OBEYED.search(shown)
    assert "\n" not in shown
    assert "\t" not in shown
    shown.encode()
    assert not OBEYED.search(escaped_lines(text))


def test_what_is_harmless_stays_as_it_is() -> None:
    for text in ("", "orders", "Ärger mit Ünïcode 日本語 🙂", "back\\slash 'quoted' \"twice\""):
        assert escaped(text) == text
    assert escaped("a\nb\x1bc\u202ed") == "a\\nb\\x1bc\\u202ed"


@given(texts, st.booleans())
def test_json_is_json_and_holds_no_control_character(text: str, ascii_only: bool) -> None:
    value = {"id": text, "list": [text]}
    shown = json_text(value, 2, ensure_ascii=ascii_only)
    assert not OBEYED.search(shown)
    assert json.loads(shown) == value


# --- the command line -----------------------------------------------------------------------------


def test_a_cell_of_a_table_is_one_cell_of_one_line() -> None:
    shown = table(("GROUP", "CLIENT"), [("g", NASTY), ("h", "plain")])
    assert not OBEYED.search(shown)
    assert len(shown.splitlines()) == 3


def test_the_printer_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    echo(f"\tDeleted topic {NASTY}.")
    echo_lines(f"one\ntwo {NASTY!r}")
    echo_json({"name": NASTY})
    said = capsys.readouterr().out
    assert said.startswith("\tDeleted topic a\\x1b[2J")
    assert not OBEYED.search(said)
    assert len(said.splitlines()) == 4


@pytest.mark.parametrize("kind", [click.ClickException, click.UsageError])
def test_a_message_of_an_error_is_escaped(
    kind: type[click.ClickException],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(**_: object) -> None:
        raise kind(f"group {NASTY} is unknown")

    monkeypatch.setattr(cli_main.cli, "main", fail)
    assert cli_main.run([]) == kind.exit_code
    said = capsys.readouterr().err
    assert "\\x07b\\nmade up line" in said
    assert not OBEYED.search(said)


def test_the_end_of_a_log_keeps_its_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise LocalClusterError("broker 1 ended:\n  Traceback\n  \x07")

    monkeypatch.setattr(cli_main.cli, "main", fail)
    assert cli_main.run([]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said == ["quorate: broker 1 ended:", "  Traceback", "  \\x07"]


def test_commands_print_by_the_printer_alone() -> None:
    """A new command cannot forget to escape: nothing else prints."""
    package = Path(cli_main.__file__).parent
    printing = re.compile(r"click\.(echo|secho)|(?<![\w.])print\(|sys\.std(out|err)\.write")
    allowed = {"output.py": 5, "top_command.py": 1}  # The latter clears the terminal.
    for path in sorted(package.rglob("*.py")):
        found = printing.findall(path.read_text())
        assert len(found) == allowed.get(path.name, 0), f"{path.name}: use quorate.cli.output"


def test_a_record_as_json_holds_no_control_character() -> None:
    class Message:
        def topic(self) -> str:
            return "orders"

        partition = offset = lambda self: 0
        timestamp = lambda self: (1, 2)  # noqa: E731
        headers = lambda self: [(NASTY.replace("\ud800", ""), b"\xc2\x9b")]  # noqa: E731
        key = lambda self: b"\x7f"  # noqa: E731
        value = lambda self: NASTY.replace("\ud800", "").encode()  # noqa: E731

    line = as_json_line(Message()).decode()  # type: ignore[arg-type]
    assert not OBEYED.search(line)
    assert json.loads(line)["value"] == NASTY.replace("\ud800", "")


# --- logs -----------------------------------------------------------------------------------------


@pytest.fixture
def logged() -> tuple[logging.Logger, io.StringIO]:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(EscapingFormatter("%(levelname)s %(name)s: %(message)s"))
    logger = logging.Logger("quorate.test")
    logger.addHandler(handler)
    return logger, out


def test_a_log_record_is_one_line(logged: tuple[logging.Logger, io.StringIO]) -> None:
    logger, out = logged
    logger.info("session %s opened for %s", "1f", NASTY)
    said = out.getvalue()
    assert said.count("\n") == 1
    assert "opened for a\\x1b[2J" in said
    assert not OBEYED.search(said)


def test_a_traceback_keeps_its_lines(logged: tuple[logging.Logger, io.StringIO]) -> None:
    logger, out = logged
    try:
        raise ValueError(NASTY)
    except ValueError:
        logger.exception("client %s", NASTY)
    said = out.getvalue()
    assert "\nTraceback (most recent call last):\n" in said
    assert not OBEYED.search(said)


@pytest.mark.parametrize("module", ["broker.process", "quorum.process"])
def test_both_kinds_of_process_log_by_that_formatter(module: str) -> None:
    name = f"quorate.{module}"
    __import__(name)
    source = Path(str(sys.modules[name].__file__)).read_text()
    assert "log_to_stderr(" in source
    assert "basicConfig" not in source


async def test_an_audit_entry_is_one_line_of_json(tmp_path: Path) -> None:
    kept = AuditLog(tmp_path / "audit.log")
    await kept.keep([{"principal": f"User:{NASTY}", "client_id": NASTY, "resource": NASTY}])
    await kept.close()
    (line,) = (await asyncio.to_thread((tmp_path / "audit.log").read_text)).splitlines()
    assert not OBEYED.search(line)
    assert json.loads(line)["client_id"] == NASTY


# --- metrics --------------------------------------------------------------------------------------


def test_a_label_is_one_label_of_one_sample() -> None:
    family = Family("quorate_x", MetricKind.GAUGE, "g", "X", "For this test.", ("group",))
    forged = 'g"} 1\nquorate_forged{group="h\\'
    text = exposition([Sample(family, 1.0, (forged,)), Sample(family, 2.0, (NASTY,))]).decode()
    assert not OBEYED.search(text)
    samples = [sample for found in text_string_to_metric_families(text) for sample in found.samples]
    ours = [sample for sample in samples if sample.name.startswith("quorate_")]
    assert [(sample.name, sample.value) for sample in ours] == [("quorate_x", 1), ("quorate_x", 2)]
    assert ours[0].labels["group"] == forged


def test_the_help_works() -> None:
    assert CliRunner().invoke(cli_main.cli, ["--help"]).exit_code == 0
