"""``quorate certs``: what it writes, what it keeps, what it refuses."""

import json
import stat
from pathlib import Path

import pytest

from quorate.cli.main import run
from quorate.common.tls.identity import Role, Security
from quorate.common.tls.keystore import load_security, require_node


def load(folder: Path, stem: str, role: Role) -> Security:
    truststore = folder / "truststore.pem"
    return load_security("keystore", folder / f"{stem}.pem", "truststore", truststore, role)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_everybody_gets_a_certificate_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--voters", "1,2", "--brokers", "3", "--admin", "alice", "--host", "10.0.0.1"]
    assert run(["certs", "--out", str(tmp_path), *words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["truststore"] == str(tmp_path / "truststore.pem")
    assert [entry["name"] for entry in said["keystores"]] == [
        "voter-1",
        "voter-2",
        "broker-3",
        "alice",
    ]
    require_node(load(tmp_path, "voter-2", Role.VOTER), "keystore", Role.VOTER, 2)
    require_node(load(tmp_path, "broker-3", Role.BROKER), "keystore", Role.BROKER, 3)
    assert load(tmp_path, "alice", Role.ADMIN).principal.common_name == "alice"
    public = {path.name for path in tmp_path.iterdir() if stat.S_IMODE(path.stat().st_mode) & 0o077}
    assert public == {"truststore.pem"}


def test_a_second_run_adds_and_keeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["certs", "--out", str(tmp_path), "--voters", "1"]) == 0
    before = files(tmp_path)
    assert run(["certs", "--out", str(tmp_path), "--voters", "1,2"]) == 0
    assert "kept; --renew makes a new one" in capsys.readouterr().out
    after = files(tmp_path)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"voter-2.pem"}


def test_renewing_replaces_the_nodes_and_not_the_authority(tmp_path: Path) -> None:
    assert run(["certs", "--out", str(tmp_path), "--voters", "1,2"]) == 0
    before = files(tmp_path)
    assert run(["certs", "--out", str(tmp_path), "--voters", "1", "--renew"]) == 0
    after = files(tmp_path)
    assert {name for name in before if before[name] != after[name]} == {"voter-1.pem"}
    load(tmp_path, "voter-1", Role.VOTER)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "for whom? Give --voters, --brokers or --admin"),
        (["--voters", "1,x"], "must be ids, as in 1,2,3"),
        (["--voters", "1-3"], "must be ids, as in 1,2,3"),
        (["--admin", "voter-1"], "no node's name"),
        (["--admin", "../alice"], "must be letters"),
        (["--admin", "ca-key"], "no node's name"),
        (["--voters", "1", "--days", "0"], "--days"),
    ],
)
def test_what_cannot_be_made_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert run(["certs", "--out", str(tmp_path / "certs"), *words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "certs").exists()


def test_half_an_authority_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["certs", "--out", str(tmp_path), "--voters", "1"]) == 0
    (tmp_path / "ca-key.pem").unlink()
    assert run(["certs", "--out", str(tmp_path), "--voters", "2"]) == 1
    assert "ca-key.pem is missing" in capsys.readouterr().err
