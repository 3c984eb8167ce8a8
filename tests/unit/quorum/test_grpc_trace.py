"""Who wants to hear what of grpc's core: a voter its handshakes, a command nothing."""

import os

import pytest

from quorate.common.grpc_support.grpc_log import quiet_handshakes, trace_handshakes


@pytest.fixture(autouse=True)
def nothing_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GRPC_TRACE", "GRPC_VERBOSITY"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_a_voter_started_by_a_command_traces_its_handshakes() -> None:
    quiet_handshakes()
    trace_handshakes()
    assert os.environ["GRPC_TRACE"] == "handshaker"
    assert "GRPC_VERBOSITY" not in os.environ


@pytest.mark.parametrize(("name", "value"), [("GRPC_TRACE", "http"), ("GRPC_VERBOSITY", "DEBUG")])
def test_what_the_user_asked_for_stays(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    trace_handshakes()
    quiet_handshakes()
    assert os.environ[name] == value
    assert {"GRPC_TRACE", "GRPC_VERBOSITY"} & set(os.environ) == {name}
