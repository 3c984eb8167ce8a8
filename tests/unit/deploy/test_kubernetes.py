"""The manifests of ``deploy/kubernetes``: by Kubernetes' own schemas, and against the product."""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from quorate.broker.config.grpc_listeners import (
    ADVERTISED_GRPC_LISTENER,
    GRPC_LISTENER,
    INTER_BROKER_LISTENER,
    REPLICATION_PORT,
)
from quorate.broker.config.listeners import ADVERTISED_LISTENERS, LISTENERS
from quorate.broker.config.log import LOG_DIR
from quorate.broker.config.node import (
    BROKER_ID,
    BROKER_RACK,
    CONTROLLED_SHUTDOWN_TIMEOUT_MS,
    QUORUM_BOOTSTRAP_SERVERS,
)
from quorate.broker.security.config_file import load_config
from quorate.common.configuration import parse_endpoint
from quorate.common.metrics.metrics_endpoint import METRICS_LISTENER
from quorate.common.tls.tls_config import BROKER_SECURITY, VOTER_SECURITY
from quorate.quorum.quorum_config import load_quorum_config
from tests.support import guide
from tests.support.command_lines import parsed, settings_of, words_of_script

FOLDER: Final = guide.DEPLOY / "kubernetes"
NAMESPACE: Final = "quorate"
SETS: Final = ("quorate-quorum", "quorate-broker")
DISK: Final = Path("/var/lib/quorate")

by_set = pytest.mark.parametrize("name", SETS)
by_pod = pytest.mark.parametrize("index", [0, 1, 2])


def kustomization() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    return loaded


@cache
def resources() -> list[dict[str, Any]]:
    files = kustomization()["resources"]
    return [one for file in files for one in yaml.safe_load_all((FOLDER / file).read_text())]


def resource(kind: str, name: str) -> dict[str, Any]:
    (found,) = (
        one for one in resources() if (one["kind"], one["metadata"]["name"]) == (kind, name)
    )
    return found


def pod(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = resource("StatefulSet", name)["spec"]["template"]["spec"]
    return spec


def container(name: str) -> dict[str, Any]:
    (found,) = pod(name)["containers"]
    return dict(found)


def ports_of(name: str) -> dict[str, int]:
    return {one["name"]: one["containerPort"] for one in container(name)["ports"]}


def command_of(name: str, index: int, folder: Path) -> list[str]:
    """The words of the ``quorate`` command that a pod runs, without the program."""
    own = container(name)
    variables = {"HOSTNAME": f"{name}-{index}", "NAMESPACE": NAMESPACE, "RACK": f"zone-{index}"}
    return words_of_script([*own["command"], *own["args"]], variables, folder)


def dns_name(name: str, index: int) -> str:
    service = resource("StatefulSet", name)["spec"]["serviceName"]
    return f"{name}-{index}.{service}.{NAMESPACE}.svc.cluster.local"


@pytest.mark.parametrize("version", ["1.29", kubernetes_validate.latest_version()])
def test_kubernetes_schemas_accept_every_resource(version: str) -> None:
    for one in resources():
        kubernetes_validate.validate(one, version, strict=True)


def test_kustomize_finds_every_file_and_names_the_version_of_the_project() -> None:
    found = kustomization()
    generated = found["configMapGenerator"][0]
    for file in (*found["resources"], *generated["files"]):
        assert (FOLDER / file).is_file()
    project = tomllib.loads((guide.ROOT / "pyproject.toml").read_text())
    assert found["images"] == [{"name": "quorate", "newTag": project["project"]["version"]}]
    assert {container(name)["image"] for name in SETS} == {"quorate"}
    assert found["namespace"] == resource("Namespace", NAMESPACE)["metadata"]["name"]


@by_pod
def test_each_pod_runs_a_valid_voter(index: int, tmp_path: Path) -> None:
    context = parsed(command_of("quorate-quorum", index, tmp_path))
    assert context.info_name == "quorum"
    settings = settings_of(context)
    config = load_quorum_config(FOLDER / context.params["config"].name, dict(settings))
    assert config.voter_id == index + 1
    assert config.own.raft.host == config.own.grpc.host == dns_name("quorate-quorum", index)
    metrics = parse_endpoint("metrics", str(config.values[METRICS_LISTENER]))
    assert ports_of("quorate-quorum") == {
        "raft": config.own.raft.port,
        "grpc": config.own.grpc.port,
        "metrics": metrics.port,
    }
    assert config.data_dir.is_relative_to(DISK)
    assert settings[VOTER_SECURITY.keystore.name] == f"/certs/voter-{index + 1}.pem"
    assert len(config.voters) == resource("StatefulSet", "quorate-quorum")["spec"]["replicas"]


@by_pod
def test_each_pod_runs_a_valid_broker(index: int, tmp_path: Path) -> None:
    context = parsed(command_of("quorate-broker", index, tmp_path))
    assert context.info_name == "broker"
    settings = settings_of(context)
    config = load_config(FOLDER / context.params["config"].name, dict(settings))
    assert (config[BROKER_ID], config[BROKER_RACK]) == (index + 1, f"zone-{index}")
    told = parse_endpoint("advertised", config[ADVERTISED_LISTENERS].partition("://")[2])
    grpc = parse_endpoint("grpc", config[ADVERTISED_GRPC_LISTENER])
    inter_broker = parse_endpoint("inter", config[INTER_BROKER_LISTENER])
    name = dns_name("quorate-broker", index)
    assert {told.host, grpc.host, inter_broker.host} == {name}
    assert told.port == parse_endpoint("l", config[LISTENERS].partition("://")[2]).port
    assert grpc.port == parse_endpoint("g", config[GRPC_LISTENER]).port
    assert ports_of("quorate-broker") == {
        "kafka": told.port,
        "grpc": grpc.port,
        "inter-broker": inter_broker.port,
        "replication": config[REPLICATION_PORT],
        "metrics": parse_endpoint("metrics", config[METRICS_LISTENER]).port,
    }
    assert Path(config[LOG_DIR]).is_relative_to(DISK)
    assert settings[BROKER_SECURITY.keystore.name] == f"/certs/broker-{index + 1}.pem"


def test_brokers_know_every_voter(tmp_path: Path) -> None:
    broker = parsed(command_of("quorate-broker", 0, tmp_path))
    config = load_config(FOLDER / "broker.toml", dict(settings_of(broker)))
    wanted = [f"{dns_name('quorate-quorum', index)}:7101" for index in range(3)]
    assert config[QUORUM_BOOTSTRAP_SERVERS].split(",") == wanted


@by_set
def test_a_set_has_a_service_that_names_its_pods_before_they_are_ready(name: str) -> None:
    whole = resource("StatefulSet", name)["spec"]
    service = resource("Service", whole["serviceName"])["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True
    assert whole["podManagementPolicy"] == "Parallel"
    named = {one["targetPort"]: one["port"] for one in service["ports"]}
    assert named == ports_of(name)


def test_clients_begin_at_brokers_that_are_ready() -> None:
    service = resource("Service", NAMESPACE)["spec"]
    assert "publishNotReadyAddresses" not in service
    ports = ports_of("quorate-broker")
    assert all(ports[one["targetPort"]] == one["port"] for one in service["ports"])


@by_set
def test_all_selectors_mean_the_pods_of_the_set(name: str) -> None:
    whole = resource("StatefulSet", name)["spec"]
    labels = whole["template"]["metadata"]["labels"]
    (apart,) = pod(name)["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    (spread,) = pod(name)["topologySpreadConstraints"]
    budget = resource("PodDisruptionBudget", name)["spec"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert spread["topologyKey"] == "topology.kubernetes.io/zone"
    assert budget["maxUnavailable"] == 1
    for selector in (whole["selector"], apart["labelSelector"], spread["labelSelector"]):
        assert selector == budget["selector"] == {"matchLabels": labels}
    assert resource("Service", whole["serviceName"])["spec"]["selector"] == labels


@by_set
def test_probes_ask_the_health_pages(name: str) -> None:
    own = container(name)
    asked = {probe: own[probe]["httpGet"] for probe in own if probe.endswith("Probe")}
    assert asked == {
        "startupProbe": {"path": "/healthz", "port": "metrics"},
        "livenessProbe": {"path": "/healthz", "port": "metrics"},
        "readinessProbe": {"path": "/readyz", "port": "metrics"},
    }


@by_set
def test_pods_run_as_the_user_of_the_image_and_can_write_only_to_their_disk(name: str) -> None:
    containerfile = (guide.DEPLOY / "container" / "Containerfile").read_text()
    (user,) = re.findall(r"^USER (\d+):\1$", containerfile, re.MULTILINE)
    whole, own = pod(name)["securityContext"], container(name)["securityContext"]
    assert whole["runAsNonRoot"] is True
    assert {whole["runAsUser"], whole["runAsGroup"], whole["fsGroup"]} == {int(user)}
    assert own == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = {one["name"] for one in container(name)["volumeMounts"] if not one.get("readOnly")}
    assert writable == {"data", "tmp"}


@by_set
def test_what_is_mounted_is_there(name: str) -> None:
    claims = resource("StatefulSet", name)["spec"]["volumeClaimTemplates"]
    volumes = [*pod(name)["volumes"], *(one["metadata"] for one in claims)]
    declared = {one["name"] for one in volumes}
    assert {one["name"] for one in container(name)["volumeMounts"]} == declared
    (config,) = (one["configMap"]["name"] for one in pod(name)["volumes"] if "configMap" in one)
    assert config == kustomization()["configMapGenerator"][0]["name"]
    (secret,) = (one["secret"]["secretName"] for one in pod(name)["volumes"] if "secret" in one)
    lines = guide.GUIDE.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    (made,) = (line for line in lines if f"create secret generic {secret}" in line)
    role = {"quorate-quorum": "voter", "quorate-broker": "broker"}[name]
    files = ["truststore.pem", *(f"{role}-{number}.pem" for number in (1, 2, 3))]
    assert re.findall(r"--from-file=certs/(\S+)", made) == files


def test_a_broker_may_take_longer_to_stop_than_it_hands_over() -> None:
    handing_over_ms = CONTROLLED_SHUTDOWN_TIMEOUT_MS.default
    assert handing_over_ms is not None
    assert pod("quorate-broker")["terminationGracePeriodSeconds"] * 1000 > 2 * handing_over_ms
