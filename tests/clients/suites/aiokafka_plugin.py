"""A pytest plugin inside aiokafka's test run: a broker that runs in place of one in Docker.

It imports nothing of ours, since the suite's own ``tests`` package is on the path then.
"""

import os
import sys
from types import ModuleType, SimpleNamespace

import pytest


def _no_docker() -> ModuleType:
    """What the suite's conftest names of the docker module."""
    module = ModuleType("docker")
    container = SimpleNamespace(Container=object)
    module.models = SimpleNamespace(containers=container)  # type: ignore[attr-defined]
    module.from_env = lambda: SimpleNamespace(close=lambda: None)  # type: ignore[attr-defined]
    return module


sys.modules["docker"] = _no_docker()


def _server() -> SimpleNamespace:
    host, _, port = os.environ["SUITE_BOOTSTRAP"].rpartition(":")
    return SimpleNamespace(
        host=host,
        port=int(port),
        ssl_port=0,
        sasl_plain_port=0,
        sasl_ssl_port=0,
        container=None,
        hosts=[f"{host}:{port}"],
    )


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> object | None:
    """The suite's fixtures that would start containers give what is there already."""
    if fixturedef.argname == "kafka_image":
        value: object = request.config.getoption("--docker-image")
    elif fixturedef.argname == "kafka_server":
        value = _server()
    elif fixturedef.argname in ("ssl_folder", "kerberos_utils"):
        value = SimpleNamespace()
    else:
        return None
    fixturedef.cached_result = (value, fixturedef.cache_key(request), None)  # type: ignore[arg-type]
    return value
