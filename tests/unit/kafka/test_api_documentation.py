"""docs/CLIENTS.md says of every API of Kafka which versions are served, or why none is."""

from quorate.broker.kafka.api_table import api_table
from tests.support.api_documentation import DOCUMENT, NOT_SERVED, rewritten, rows


def test_the_document_has_the_versions_that_are_served() -> None:
    text = DOCUMENT.read_text()
    assert rewritten(text) == text, "python -m tests.support.api_documentation writes them"


def test_the_document_has_every_api_once() -> None:
    keys = [row.key for row in rows(DOCUMENT.read_text())]
    assert keys == sorted(set(keys))
    assert set(api_table()) <= set(keys)


def test_every_difference_has_a_reason_and_nothing_else_has_one() -> None:
    for row in rows(DOCUMENT.read_text()):
        if row.here != row.kafka:
            assert row.why, f"{row.name}: say why Kafka has {row.kafka} and Quorate {row.here}"
        elif row.name not in ALIKE_BUT_OTHERWISE:
            assert not row.why, f"{row.name}: both have {row.kafka}"


def test_what_is_not_served_is_named() -> None:
    """So that a lost entry of the table of APIs is noticed."""
    unserved = {row.name for row in rows(DOCUMENT.read_text()) if row.here == NOT_SERVED}
    assert "Produce" not in unserved
    assert "StreamsGroupHeartbeat" in unserved


ALIKE_BUT_OTHERWISE = {"AddRaftVoter", "RemoveRaftVoter", "AlterReplicaLogDirs", "UnregisterBroker"}
"""What has Kafka's versions, and does less: the document says what."""
