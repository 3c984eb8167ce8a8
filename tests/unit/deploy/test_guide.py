"""``docs/DEPLOY.md`` and the files in ``deploy/`` agree, and the product understands them."""

import contextlib
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from quorate.broker.config.grpc_listeners import GRPC_LISTENER, INTER_BROKER_LISTENER
from quorate.broker.config.listeners import LISTENERS
from quorate.broker.config.node import BROKER_RACK, CONTROLLED_SHUTDOWN_TIMEOUT_MS
from quorate.broker.host.host_configs import load_configs
from quorate.broker.security.config_file import load_config
from quorate.common.configuration import parse_endpoint, read_toml
from quorate.common.tls.tls_config import COMMAND_SPEC
from quorate.common.types import Endpoint
from quorate.quorum.quorum_config import load_quorum_config
from tests.support import guide
from tests.support.command_lines import parsed, settings_of
from tests.support.messages import is_said
from tests.support.three_hosts import CLUSTER_PORTS, HOSTS

UNITS = ("quorate-quorum", "quorate-broker")
HOST_UNIT = "quorate-brokers"
COMPOSE = guide.DEPLOY / "compose"


def rendered_to(folder: Path, template: str, instance: int) -> Path:
    path = folder / template.removesuffix(".in")
    path.write_text(guide.rendered(template, instance))
    return path


# --- configuration ------------------------------------------------------------------------------


@pytest.mark.parametrize("host", HOSTS)
def test_every_hosts_configuration_is_valid(host: int, tmp_path: Path) -> None:
    voter = load_quorum_config(rendered_to(tmp_path, "quorum.toml.in", host), {})
    assert voter.voter_id == host
    assert (voter.own.raft.port, voter.own.grpc.port) == (
        CLUSTER_PORTS["raft"],
        CLUSTER_PORTS["quorum"],
    )
    broker = load_config(rendered_to(tmp_path, "broker.toml.in", host), {})
    found = dict(broker.items())
    assert found["broker.id"] == host
    listener = parse_endpoint("listeners", str(found["listeners"]))
    assert listener == (voter.own.raft.host, CLUSTER_PORTS["kafka"])
    addresses = str(found["quorum.bootstrap.servers"]).split(",")
    assert addresses == [str(each.grpc) for each in voter.voters]


@pytest.mark.parametrize("kind", ["quorum", "broker"])
def test_the_guide_shows_the_file_that_the_template_makes(kind: str) -> None:
    assert guide.shown_file(f"{kind}-1.toml") == guide.rendered(f"{kind}.toml.in", 1)


@pytest.mark.parametrize("folder", ["config", "compose"])
def test_the_administrators_configuration_is_valid(folder: str) -> None:
    COMMAND_SPEC.parse(read_toml(guide.DEPLOY / folder / "admin.toml"))


# --- commands and messages ----------------------------------------------------------------------


@pytest.mark.parametrize("words", guide.commands(), ids=" ".join)
def test_every_command_of_the_guide_exists(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("topics.json", "plan.json"):  # The guide makes them.
        (tmp_path / name).write_text("{}")
    # Running text may name a command without all that it needs, but nothing that is not there.
    with contextlib.suppress(click.MissingParameter):
        parsed(words)


def troubles() -> list[str]:
    table = guide.GUIDE.read_text(encoding="utf-8").partition("## Troubleshooting")[2]
    return re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)


@pytest.mark.parametrize("message", troubles())
def test_what_the_guide_quotes_the_product_says(message: str) -> None:
    assert is_said(message)


def test_the_troubleshooting_table_is_read() -> None:
    assert len(troubles()) > 20
    assert not is_said("data folder … is on fire")


# --- systemd ------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_starts_what_the_guide_configures(unit: str) -> None:
    program, *words = guide.unit_command(unit, 2)
    assert program == "/opt/quorate/bin/quorate"
    kind = unit.removeprefix("quorate-")
    context = parsed(words)
    assert context.info_name == kind
    assert context.params["config"] == Path(f"/etc/quorate/{kind}-2.toml")
    assert f"> /etc/quorate/{kind}-$ID.toml" in guide.step("configuration")


def test_the_unit_of_a_host_starts_brokers_that_fit_together(tmp_path: Path) -> None:
    for host in HOSTS:
        _, *words = guide.unit_command(HOST_UNIT, host)
        context = parsed(words)
        assert context.info_name == "brokers"
        named = context.params["configs"]
        assert named == tuple(Path(f"/etc/quorate/broker-{host}{number}.toml") for number in (1, 2))
        files = [tmp_path / path.name for path in named]
        for number, path in enumerate(files, 1):
            path.write_text(guide.rendered_of_host(host, number))
        configs = list(load_configs(files, {}).values())
        assert {config[BROKER_RACK] for config in configs} == {f"host-{host}"}
        addresses = [
            address
            for config in configs
            for address in (config[LISTENERS], config[GRPC_LISTENER], config[INTER_BROKER_LISTENER])
        ]
        assert len(set(addresses)) == len(addresses)


def test_the_files_of_a_host_are_made_as_the_guide_says() -> None:
    step = guide.step("brokers-of-a-host")
    assert "deploy/config/broker-of-host.toml.in > /etc/quorate/broker-$ID$NUMBER.toml" in step
    made = parsed(shlex.split(guide.step("certificates-of-hosts"))[1:]).params
    ids = [host * 10 + number for host in HOSTS for number in (1, 2)]
    assert made["brokers"] == ids


@pytest.mark.parametrize("unit", [*UNITS, HOST_UNIT])
def test_a_broker_may_take_longer_to_stop_than_it_hands_over(unit: str) -> None:
    text = (guide.DEPLOY / "systemd" / f"{unit}@.service").read_text()
    (stop_s,) = re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    handing_over_ms = CONTROLLED_SHUTDOWN_TIMEOUT_MS.default
    assert handing_over_ms is not None
    assert int(stop_s) * 1000 > 2 * handing_over_ms


@pytest.mark.parametrize("unit", [*UNITS, HOST_UNIT])
def test_a_unit_waits_until_its_process_says_that_it_is_up(unit: str) -> None:
    text = (guide.DEPLOY / "systemd" / f"{unit}@.service").read_text()
    assert "\nType=notify\n" in text
    assert "\nTimeoutStartSec=infinity\n" in text, "a broker waits for the quorum, and recovers"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
@pytest.mark.parametrize("unit", [*UNITS, HOST_UNIT])
def test_systemd_understands_the_units(unit: str, tmp_path: Path) -> None:
    text = (guide.DEPLOY / "systemd" / f"{unit}@.service").read_text()
    path = tmp_path / f"{unit}@1.service"
    path.write_text(text.replace("/opt/quorate/bin/quorate", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False
    )
    if "Failed to" in done.stderr and str(path) not in done.stderr:
        pytest.skip(f"systemd-analyze does not work here: {done.stderr.strip()}")
    assert (done.returncode, done.stderr) == (0, "")


# --- compose ------------------------------------------------------------------------------------


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    return loaded


def node_services(kind: str) -> dict[int, Any]:
    services = compose()["services"]
    return {
        int(name.rpartition("-")[2]): service
        for name, service in services.items()
        if name.startswith(f"{kind}-")
    }


def addresses(listeners: object) -> dict[str, Endpoint]:
    """The addresses of listeners by their name."""
    named = (one.split("://") for one in str(listeners).split(","))
    return {name: parse_endpoint("listeners", address) for name, address in named}


@pytest.mark.parametrize("kind", ["quorum", "broker"])
def test_compose_asks_every_node_whether_it_is_ready(kind: str) -> None:
    for service in node_services(kind).values():
        _, program, *words = service["healthcheck"]["test"]
        assert program == "quorate"
        asked = parse_endpoint("ready", parsed(words).params["metrics_listener"])
        configured = read_toml(COMPOSE / f"{kind}.toml")["metrics.listener"]
        assert asked.port == parse_endpoint("metrics.listener", str(configured)).port


@pytest.mark.parametrize("number", [1, 2, 3])
def test_compose_runs_valid_voters(number: int) -> None:
    service = node_services("quorum")[number]
    context = parsed(service["command"])
    config = load_quorum_config(COMPOSE / context.params["config"].name, settings_of(context))
    assert config.voter_id == number
    assert config.own.raft.host == service["hostname"] == f"quorum-{number}"
    assert f"quorum-{number}:/var/lib/quorate" in service["volumes"]
    assert config.data_dir.is_relative_to("/var/lib/quorate")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_compose_runs_valid_brokers(number: int) -> None:
    service = node_services("broker")[number]
    context = parsed(service["command"])
    broker = load_config(COMPOSE / context.params["config"].name, settings_of(context))
    found = dict(broker.items())
    assert found["broker.id"] == number
    bound, told = addresses(found["listeners"]), addresses(found["advertised.listeners"])
    assert {name: one.port for name, one in bound.items()} == {
        name: one.port for name, one in told.items()
    }
    assert told["INSIDE"].host == f"broker-{number}", "applications in the network reach it"
    assert told["OUTSIDE"].host == "127.0.0.1"
    grpc = parse_endpoint("grpc", str(found["grpc.listener"]))
    told_grpc = parse_endpoint("advertised", str(found["advertised.grpc.listener"]))
    outside = told["OUTSIDE"].port
    assert service["ports"] == [f"{outside}:{outside}", f"{told_grpc.port}:{grpc.port}"]
    assert f"broker-{number}:/var/lib/quorate" in service["volumes"]
    voters = load_quorum_config(
        COMPOSE / "quorum.toml", settings_of(parsed(node_services("quorum")[1]["command"]))
    ).voters
    assert found["quorum.bootstrap.servers"] == ",".join(str(voter.grpc) for voter in voters)


def test_compose_makes_the_certificates_that_its_nodes_use() -> None:
    services = compose()["services"]
    made = parsed(services["certs"]["command"]).params
    assert (made["voters"], made["brokers"], made["admins"]) == ([1, 2, 3], [1, 2, 3], ("admin",))
    for kind, key in (
        ("quorum", "ssl.keystore.location"),
        ("broker", "quorum.ssl.keystore.location"),
    ):
        role = "voter" if kind == "quorum" else "broker"
        for number, service in node_services(kind).items():
            keystore = settings_of(parsed(service["command"]))[key]
            assert keystore == str(made["out"] / f"{role}-{number}.pem")


def test_compose_declares_every_volume_that_it_mounts() -> None:
    found = compose()
    mounted = {
        volume.partition(":")[0]
        for service in found["services"].values()
        for volume in service["volumes"]
    }
    assert mounted - {"./"} == set(found["volumes"])


def wheel_target() -> dict[str, Any]:
    project = tomllib.loads((guide.ROOT / "pyproject.toml").read_text())
    target: dict[str, Any] = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    return target


def test_what_pip_installs_is_built_from_packages_that_do_not_nest() -> None:
    """Of a package inside another one hatchling takes the path off both: nothing can be built."""
    packages = wheel_target()["packages"]
    for package in packages:
        assert not [other for other in packages if package.startswith(f"{other}/")]
    for source, target in wheel_target()["force-include"].items():
        assert (guide.ROOT / source).is_dir()
        assert "/" not in target
