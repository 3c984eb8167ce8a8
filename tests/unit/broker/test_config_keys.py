"""The broker's keys: declared in the module of their area, and all of them understood."""

import importlib
import pkgutil

import pytest

import quorate.broker.config
from quorate.broker.config.node import BROKER_ID
from quorate.broker.config.spec import BROKER_SPEC
from quorate.common.configuration import ConfigSpec, declared


def test_every_declared_key_is_understood() -> None:
    areas = [
        importlib.import_module(f"quorate.broker.config.{module.name}")
        for module in pkgutil.iter_modules(quorate.broker.config.__path__)
        if module.name not in ("spec", "client_metrics_keys", "group_keys")
    ]
    keys = [key for area in areas for key in declared(area)]
    assert len(keys) > 20
    assert [key.name for key in keys if key.name not in BROKER_SPEC] == []


def test_a_key_declared_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=BROKER_ID.name):
        ConfigSpec("broker", [BROKER_ID, BROKER_ID])
