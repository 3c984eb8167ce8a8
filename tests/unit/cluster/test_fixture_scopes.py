"""The pytest fixtures live as long as docs/TESTING.md says."""

import pytest


@pytest.mark.parametrize(
    ("fixture", "scope"),
    [
        ("shared_quorate_cluster", "session"),
        ("session_quorate_cluster", "session"),
        ("module_quorate_cluster", "module"),
        ("quorate_cluster", "function"),
        ("quorate_topic", "function"),
        ("quorate_group", "function"),
        ("quorate_consumer", "function"),
    ],
)
def test_a_fixture_has_its_scope(request: pytest.FixtureRequest, fixture: str, scope: str) -> None:
    defined = request._fixturemanager.getfixturedefs(fixture, request.node)
    assert defined is not None
    assert [one.scope for one in defined] == [scope]
