"""Most tests of commands have an admin client of their own, and addresses that nobody has."""

import pytest

from quorate.cli import admin_session

LOOKS_FOR_BROKERS = "test_help_for_people"
"""The module whose tests are about brokers that cannot be reached."""


@pytest.fixture(autouse=True)
def _brokers_are_reachable(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.module.__name__.endswith(LOOKS_FOR_BROKERS):
        monkeypatch.setattr(admin_session, "require_reachable", lambda addresses: None)
