"""Keys without effect are named in the log, once at the start, and once for each request."""

import logging

import pytest

from quorate.broker.config.ignored_keys import warn_of_ignored_changes, warn_of_ignored_keys
from quorate.metadata_log.records import ConfigSet
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.metadata import MetadataLogBuilder


def test_a_start_warns_once_of_all_keys_that_topics_set(caplog: pytest.LogCaptureFixture) -> None:
    log = MetadataLogBuilder()
    log.start_broker(1)
    log.elect_controller(1)
    warn_of_ignored_keys(log.image)
    assert not caplog.records
    for topic, key in (("a", "flush.ms"), ("b", "flush.ms"), ("b", "preallocate"), ("c", "x")):
        entity = {"entity_type": "topic", "entity_name": topic}
        assert log.write_as_controller(ConfigSet(**entity, key=key, value="1")).ok
    warn_of_ignored_keys(log.image)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message.endswith("flush.ms (2 topics), preallocate (1 topics)")


def test_a_request_warns_once_of_what_it_has_set(caplog: pytest.LogCaptureFixture) -> None:
    changes = [
        ("topic", "a", {"flush.ms": "1", "retention.ms": "5"}),
        ("topic", "b", {"flush.ms": "1"}),
        ("topic", "refused", {"preallocate": "true"}),
        ("group", "g", {"flush.ms": "1"}),
    ]
    codes = (0, 0, errors_pb2.INVALID_CONFIG, 0)
    results = [admin_pb2.ConfigResult(error_code=code) for code in codes]
    warn_of_ignored_changes(changes, results)
    (record,) = caplog.records
    assert record.message == "topic a and 1 more: set, but without effect here: flush.ms"
