"""docs/CONFIG.md: every configuration key as it is declared."""

from collections.abc import Iterable, Iterator
from typing import Any

from quorate.broker.config.client_metrics_keys import CLIENT_METRICS_SPEC
from quorate.broker.config.group_keys import GROUP_SPEC
from quorate.broker.config.spec import BROKER_SPEC
from quorate.broker.config.topic_keys import TOPIC_KEYS
from quorate.common.configuration import ConfigKey, Update
from quorate.common.tls.tls_config import COMMAND_SPEC
from quorate.quorum.quorum_config import QUORUM_SPEC
from tests.support.reference.markdown import cell, row

_HEAD = """# Configuration reference

This page is written from the declarations of the keys (`python -m tests.support.reference`); a
test fails while it is not what they say. Keys have Kafka's names where Kafka has the thing.
Brokers and voters read them from a TOML file (`quorate node broker --config FILE`), and `--set
KEY=VALUE` overrides the file. [DEPLOY.md](DEPLOY.md) has files to begin with.

Keys whose change is *read-only* take a restart. The others change while brokers run, with
`quorate configs` or Kafka's own tools: *per-broker* ones for one broker at a time, *cluster-wide*
ones for one broker or for all.

- [Brokers](#brokers)
- [Topics](#topics)
- [Groups](#groups)
- [Subscriptions to clients' metrics](#subscriptions-to-clients-metrics)
- [Voters](#voters)
- [Commands](#commands)
"""
_COLUMNS = ("key", "default", "values", "change", "meaning")
_TYPES = {int: "whole number", float: "number", str: "text", bool: "true or false"}


def config_page() -> str:
    """Return the page."""
    topics = ((one.key, _topic_default(one)) for one in TOPIC_KEYS.values())
    parts = [
        _HEAD,
        _section("Brokers", "", _plain(BROKER_SPEC)),
        _section(
            "Topics",
            "What a topic does not set is that of the broker key in the second column. "
            "`quorate configs --entity-type topics` changes all of them while brokers run.",
            topics,
        ),
        _section(
            "Groups", "Kafka's tools change them: `--entity-type groups`.", _plain(GROUP_SPEC)
        ),
        _section(
            "Subscriptions to clients' metrics",
            "`quorate client-metrics` changes them.",
            _plain(CLIENT_METRICS_SPEC),
        ),
        _section("Voters", "", _plain(QUORUM_SPEC)),
        _section("Commands", "In the file that `--command-config` names.", _plain(COMMAND_SPEC)),
    ]
    return "\n".join(parts)


def _plain(keys: Iterable[ConfigKey[Any]]) -> Iterator[tuple[ConfigKey[Any], str]]:
    return ((key, _default(key)) for key in keys)


def _section(title: str, intro: str, keys: Iterable[tuple[ConfigKey[Any], str]]) -> str:
    found = sorted(keys, key=lambda one: one[0].name)
    with_change = any(key.update is not Update.READ_ONLY for key, _ in found)
    columns = _COLUMNS if with_change else tuple(one for one in _COLUMNS if one != "change")
    lines = [f"## {title}\n"]
    if intro:
        lines.append(f"{intro}\n")
    lines += [row(columns), row("---" for _ in columns)]
    lines += [row(_cells(key, default, with_change=with_change)) for key, default in found]
    return "\n".join(lines) + "\n"


def _cells(key: ConfigKey[Any], default: str, *, with_change: bool) -> list[str]:
    cells = [f"`{key.name}`", default, _values(key)]
    if with_change:
        cells.append(key.update.value)
    return [*cells, cell(key.doc)]


def _default(key: ConfigKey[Any]) -> str:
    if key.required:
        return "required"
    if key.type is bool:
        return f"`{str(key.default).lower()}`"
    return f"`{key.default}`" if key.default != "" else "empty"


def _topic_default(topic_key: Any) -> str:  # noqa: ANN401 - a TopicKey of any type
    if topic_key.broker_key is None:
        return _default(topic_key.key)
    return f"of `{topic_key.broker_key.name}`"


def _values(key: ConfigKey[Any]) -> str:
    if key.one_of:
        return ", ".join(f"`{one}`" if one else "empty" for one in key.one_of)
    if key.form:
        return cell(key.form)
    name = _TYPES[key.type]
    least, most = key.at_least, key.at_most
    if least is not None and most is not None:
        return f"{name}, {_number(least)} to {_number(most)}"
    if least is not None:
        return f"{name}, at least {_number(least)}"
    return f"{name}, at most {_number(most)}" if most is not None else name


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:g}"
