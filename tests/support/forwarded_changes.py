"""Changes over the Kafka wire, and what the metadata log and the audit logs then say of them."""

import json
import subprocess
from collections import defaultdict
from typing import Any, Final, NamedTuple

from quorate.common.types import Endpoint
from quorate.testing import RunningCluster
from tests.support.cli import command
from tests.support.kafka_wire import Values

CREATE_ACLS: Final = 30
INCREMENTAL: Final = 44
QUOTAS: Final = 49
TOPIC: Final = 2

_KEY_OF: Final = {
    "config_set": "key",
    "client_quota_set": "key",
    "acl_added": "principal",
}
"""Kind of record → the field by which a test knows what it changes."""


def endpoint(cluster: RunningCluster, broker_id: int) -> Endpoint:
    host, _, port = cluster.broker_address(broker_id).rpartition(":")
    return Endpoint(host, int(port))


def setting(topic: str, **values: str) -> Values:
    configs = [
        {"name": key.replace("_", "."), "config_operation": 0, "value": value}
        for key, value in values.items()
    ]
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": configs}
    return {"resources": [resource], "validate_only": False}


def quota(user: str, **values: float) -> Values:
    ops = [{"key": key, "value": value, "remove": False} for key, value in values.items()]
    entry = {"entity": [{"entity_type": "user", "entity_name": user}], "ops": ops}
    return {"entries": [entry], "validate_only": False}


def reader(principal: str, topic: str) -> Values:
    """An entry of CreateAcls: it may read that topic."""
    return {
        "resource_type": TOPIC,
        "resource_name": topic,
        "resource_pattern_type": 3,
        "principal": principal,
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }


def error_codes(answer: Any) -> list[int]:  # noqa: ANN401 - any of kio's responses
    """Return the error code of the answer as a whole if it has one, else those of its items."""
    if hasattr(answer, "error_code"):
        return [int(answer.error_code)]
    for field in ("responses", "results", "filter_results", "entries"):
        if hasattr(answer, field):
            return [int(one.error_code) for one in getattr(answer, field)]
    raise AssertionError(f"no error code in {answer}")


class Written(NamedTuple):
    """One operation of the metadata log that somebody asked for."""

    principal: str
    api: str
    values: frozenset[str]


def written(cluster: RunningCluster, prefix: str) -> dict[str, list[Written]]:
    """Return what the metadata log has for each client id that begins with ``prefix``."""
    found: dict[str, list[Written]] = defaultdict(list)
    last = cluster.status().metadata_offset
    words = command(
        *("metadata", "tail", "--from-offset", "0", "--json"), *("--data", str(cluster.folder))
    )
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            transaction = json.loads(line)
            for operation in () if transaction["retry_of"] else transaction["operations"]:
                note, values = _asked_for(operation)
                if note is not None and note["client_id"].startswith(prefix):
                    found[note["client_id"]].append(
                        Written(note["principal"], note["api"], frozenset(values))
                    )
            if transaction["offset"] >= last:
                break
        process.kill()
    return found


def _asked_for(operation: dict[str, Any]) -> tuple[dict[str, Any] | None, list[str]]:
    """Its note, and the keys that it set; nothing if it was refused."""
    if operation["code"] != "OK":
        return None, []
    records = [pair for record in operation["records"] for pair in record.items()]
    notes = [fields for kind, fields in records if kind == "change_note"]
    keys = [fields[_KEY_OF[kind]] for kind, fields in records if kind in _KEY_OF]
    return (notes[0] if notes else None), keys


def audited(cluster: RunningCluster, prefix: str) -> list[dict[str, Any]]:
    """Return what the brokers' audit logs have of client ids that begin with ``prefix``."""
    lines = [
        line
        for file in sorted(cluster.folder.glob("**/audit.log"))
        for line in file.read_text().splitlines()
    ]
    entries = map(json.loads, lines)
    return [entry for entry in entries if entry["client_id"].startswith(prefix)]
