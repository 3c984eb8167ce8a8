"""``quorate pipeline``: what is said of a pipeline, what is refused before anything is asked."""

import json
from pathlib import Path
from typing import Any

import pytest

from quorate.cli.main import run
from quorate.cli.tables import table
from quorate.client import admin
from quorate.client.results import Pipeline, PipelineTopic

LAKE = Pipeline(
    name="lake",
    version=9,
    run_epoch=8,
    sink="file:/lake",
    topics=(PipelineTopic(topic="t", topic_id=b"i" * 16, offsets=(5, -1)),),
    owner="h process 1",
    started_ms=1_700_000_000_000,
    commit_epoch=8,
    commit=3,
    committed_ms=1_700_000_001_000,
    rows=1_234,
    rewound=False,
    alive=True,
)
AT = ("--bootstrap-server", "h:1")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    asked: list[Any] = []

    def describe(self: admin.AdminClient, names: tuple[str, ...] = ()) -> list[Pipeline]:
        asked.append(tuple(names))
        return [LAKE] if not names or "lake" in names else []

    def delete(self: admin.AdminClient, name: str) -> None:
        asked.append(name)

    monkeypatch.setattr(admin.AdminClient, "describe_pipelines", describe)
    monkeypatch.setattr(admin.AdminClient, "delete_pipeline", delete)
    return asked


def test_pipelines_are_listed(asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "list", *AT]) == 0
    told = capsys.readouterr().out
    assert "lake      alive since 2023-11-14 22:13:20 UTC (h process 1)  1,234  file:/lake" in told
    assert run(["pipeline", "list", *AT, "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert (document["name"], document["topics"]) == ("lake", {"t": [5, -1]})


def test_a_pipeline_is_forgotten(asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "delete", "--name", "lake", *AT]) == 0
    assert asked == ["lake"]
    assert "pipeline lake is forgotten" in capsys.readouterr().out


def test_one_that_never_ran_is_told(asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "status", "--name", "sea", *AT]) == 1
    assert "the cluster knows no pipeline 'sea'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run"], "Give --config FILE"),
        (["status", *AT], "Give --config FILE or --name NAME"),
        (["reset", "--name", "lake", *AT], "give exactly one of --to-offsets"),
        (["reset", "--name", "lake", "--to-latest", "--to-earliest", *AT], "exactly one"),
        (["run", "--config", "p.toml", "--once", "--continuous", "1"], "not both"),
        (["status", "--config", "p.toml", "--name", "lake"], "not both"),
    ],
)
def test_wrong_usage_is_told(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_a_wrong_file_is_told_on_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.toml"
    file.write_text('name = "lake"\n[sink]\npaht = "/lake"\n')
    assert run(["pipeline", "run", "--config", str(file)]) == 1
    told = capsys.readouterr().err
    assert "did you mean sink.path?" in told
    assert len(told.splitlines()) == 1


def test_a_position_that_is_none_is_told(
    asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "reset", "--name", "lake", "--to-offsets", "soon", *AT]) == 1
    assert "'soon': it must be earliest" in capsys.readouterr().err


def test_numbers_stand_to_the_right() -> None:
    rows = [("a", "1,000"), ("bbb", "7")]
    assert table(("T", "N"), rows).splitlines() == ["T        N", "a    1,000", "bbb      7"]
