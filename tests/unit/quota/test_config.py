from quorate.broker.config.client_keys import (
    CONTROLLER_QUOTA_WINDOW_NUM,
    CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS,
    QUOTA_WINDOW_NUM,
    QUOTA_WINDOW_SIZE_SECONDS,
)
from quorate.broker.config.spec import BROKER_SPEC


def test_q8_windows_are_eleven_of_a_second_unless_configured() -> None:
    required = {"broker.id": 0, "log.dir": "d", "quorum.bootstrap.servers": "h:1"}
    config = BROKER_SPEC.parse(required)
    assert config[CONTROLLER_QUOTA_WINDOW_NUM] == 11
    assert config[CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS] == 1
    assert config[QUOTA_WINDOW_NUM] == 11
    assert config[QUOTA_WINDOW_SIZE_SECONDS] == 1
    config = BROKER_SPEC.parse({**required, "controller.quota.window.num": 3})
    assert config[CONTROLLER_QUOTA_WINDOW_NUM] == 3
