"""The Helm chart of ``deploy/helm``: with its defaults it is what ``deploy/kubernetes`` says.

The manifests are tested against the product in ``test_kubernetes``, so the chart is by this.
"""

import shutil
import subprocess
import tomllib
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from quorate.broker.config.node import BROKER_ID
from quorate.broker.security.config_file import load_config
from quorate.common.tls.tls_config import BROKER_SECURITY
from tests.support import guide

CHART: Final = guide.DEPLOY / "helm" / "quorate"
MANIFESTS: Final = guide.DEPLOY / "kubernetes"
NAMESPACE: Final = "quorate"

needs_helm = pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")


def rendered(*options: str, namespace: str = NAMESPACE) -> dict[tuple[str, str], Any]:
    """The resources of the chart by kind and name."""
    ran = subprocess.run(
        [
            *("helm", "template", "release", str(CHART)),
            *("--kube-version", "1.33.0", "--namespace", namespace),
            *options,
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return by_name(yaml.safe_load_all(ran.stdout))


def by_name(resources: Any) -> dict[tuple[str, str], Any]:  # noqa: ANN401 - parsed YAML
    return {(one["kind"], one["metadata"]["name"]): one for one in resources}


def configuration(found: dict[tuple[str, str], Any], file: str) -> dict[str, Any]:
    return tomllib.loads(found["ConfigMap", "quorate-config"]["data"][file])


def version() -> str:
    project = tomllib.loads((guide.ROOT / "pyproject.toml").read_text())
    return str(project["project"]["version"])


def test_the_chart_is_of_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version(), version())


@needs_helm
def test_helm_finds_nothing_wrong() -> None:
    subprocess.run(["helm", "lint", "--strict", str(CHART)], check=True, timeout=30)


@needs_helm
def test_with_its_defaults_the_chart_is_what_the_manifests_say() -> None:
    found = rendered()
    plain = by_name(
        one
        for file in ("quorum.yaml", "brokers.yaml")
        for one in yaml.safe_load_all((MANIFESTS / file).read_text())
    )
    config = found.pop(("ConfigMap", "quorate-config"))
    for file in ("quorum.toml", "broker.toml"):
        assert tomllib.loads(config["data"][file]) == tomllib.loads((MANIFESTS / file).read_text())
    for (kind, _), one in found.items():
        if kind == "StatefulSet":
            template = one["spec"]["template"]
            del template["metadata"]["annotations"]["checksum/config"]
            (container,) = template["spec"]["containers"]
            assert container.pop("imagePullPolicy") == "IfNotPresent"
            assert container["image"] == f"quorate:{version()}"
            container["image"] = "quorate"
    assert found == plain


@needs_helm
def test_kubernetes_schemas_accept_what_the_chart_makes() -> None:
    options = ("--set", "broker.storageClass=fast", "--set", "quorum.replicas=5")
    for one in rendered(*options).values():
        kubernetes_validate.validate(one, "1.33", strict=True)


@needs_helm
def test_values_reach_the_configuration() -> None:
    retention = "broker.config.log\\.retention\\.ms=86400000"
    in_sync = "broker.config.min\\.insync\\.replicas=1"
    found = rendered(
        *("--set", "quorum.replicas=5", "--set", retention, "--set", in_sync), namespace="other"
    )
    broker = configuration(found, "broker.toml")
    assert (broker["log.retention.ms"], broker["min.insync.replicas"]) == (86_400_000, 1)
    assert broker["default.replication.factor"] == 3, "what is not given stays"
    voters = broker["quorum.bootstrap.servers"].split(",")
    assert voters[4] == "quorate-quorum-4.quorate-quorum.other.svc.cluster.local:7101"
    quorum = configuration(found, "quorum.toml")
    assert quorum["quorum.voters"].count("@") == 5
    given = {BROKER_ID.name: 1, BROKER_SECURITY.keystore.name: "/certs/broker-1.pem"}
    config = load_config(MANIFESTS / "broker.toml", {**broker, **given})
    assert config[BROKER_ID] == 1, "the product takes it"
    before = rendered()
    sets = ("StatefulSet", "quorate-broker"), ("StatefulSet", "quorate-quorum")
    told = [
        [
            one[name]["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
            for name in sets
        ]
        for one in (before, rendered("--set", retention))
    ]
    assert told[0][0] != told[1][0], "a change of the brokers' configuration restarts them"
    assert told[0][1] == told[1][1], "and no voter"
