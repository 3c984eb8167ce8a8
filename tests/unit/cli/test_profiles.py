"""Which cluster a command talks to when its options name none."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from quorate.cli.profiles import Place, default_place, profile_option
from quorate.cli.shared_options import client_options, cluster_options, resolve_bootstrap
from quorate.common.configuration import ConfigError

PROFILES = """
profile = "local"
[profiles.local]
bootstrap-server = "127.0.0.1:9092"
[profiles.production]
bootstrap-server = "10.20.0.1:9092"
command-config = "client.toml"
bootstrap-controller = "10.20.0.1:7101"
"""


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(PROFILES)
    (tmp_path / "client.toml").write_text('"security.protocol" = "SSL"\n')
    monkeypatch.setenv("QUORATE_CONFIG", str(path))
    return path


@click.command()
@cluster_options
def which(bootstrap_server: str | None, data: Path | None) -> None:
    click.echo(f"{resolve_bootstrap(bootstrap_server, data)} {client_options()}")


def asked(*words: str) -> str:
    return CliRunner().invoke(which, words, catch_exceptions=False).output


def test_the_file_names_the_default_profile() -> None:
    assert asked() == "127.0.0.1:9092 {}\n"


def test_another_profile_is_chosen_by_option_or_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    production = "10.20.0.1:9092 {'security.protocol': 'SSL'}\n"
    assert asked("--profile", "production") == production
    monkeypatch.setenv("QUORATE_PROFILE", "production")
    assert asked() == production
    assert asked("--profile", "local") == "127.0.0.1:9092 {}\n"


def test_variables_come_before_profiles_and_options_before_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QUORATE_BOOTSTRAP_SERVER", "1.2.3.4:9092")
    assert asked() == "1.2.3.4:9092 {}\n"
    assert asked("--bootstrap-server", "5.6.7.8:9092") == "5.6.7.8:9092 {}\n"
    assert asked("--profile", "local") == "127.0.0.1:9092 {}\n"


def test_a_profiles_certificates_are_for_its_own_cluster_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QUORATE_PROFILE", "production")
    assert asked("--bootstrap-server", "5.6.7.8:9092") == "5.6.7.8:9092 {}\n"


def test_who_the_caller_is_may_come_from_a_variable(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUORATE_COMMAND_CONFIG", str(config.parent / "client.toml"))
    assert "SSL" in asked("--bootstrap-server", "5.6.7.8:9092")
    assert "SSL" in asked()


def test_paths_are_relative_to_the_file(config: Path) -> None:
    config.write_text('profile = "x"\n[profiles.x]\ndata = "here"\n')
    assert default_place() == Place(data=config.parent / "here")


def test_without_a_file_nothing_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUORATE_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    assert default_place() == Place()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('profile = "lokal"\n[profiles.local]\n', "no profile 'lokal': there are local"),
        ('profile = "x"\n', "no profile 'x': there are none"),
        ('profile = "x"\n[profiles.x]\nbootstrap-servr = "a:1"\n', "did you mean bootstrap-server"),
        ('profile = "x"\n[profiles.x]\nbootstrap-server = 7\n', "a profile has texts for"),
        ("profile = ", "config.toml"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_what_is_wrong(
    config: Path, text: str, why: str
) -> None:
    config.write_text(text)
    with pytest.raises(ConfigError, match=why):
        default_place()


def test_the_option_is_one_of_every_command_that_names_a_cluster() -> None:
    @click.command()
    @profile_option
    def command() -> None: ...

    assert CliRunner().invoke(command, ["--profile", "x"]).exit_code == 0
