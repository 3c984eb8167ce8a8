"""Resetting the offsets of a group without members, and deleting a group."""

from collections.abc import Mapping
from typing import Final

from quorate.broker.common.errors import error_name
from quorate.broker.console.actions.action import outcome
from quorate.broker.console.actions.form import BadForm, Form, Outcome
from quorate.broker.console.asking.console_apis import DELETE_GROUPS, OFFSET_COMMIT
from quorate.broker.console.asking.local_requests import AskFailed
from quorate.broker.console.asking.offsets import EARLIEST, LATEST, list_offsets
from quorate.broker.console.asking.person import Person
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.pages.groups_page import committed_offsets, describe_group
from quorate.broker.console.pages.records_page import BadQuestion, moment_ms
from quorate.common.types import TopicPartition

_BOUNDS: Final = {"earliest": EARLIEST, "latest": LATEST}


async def reset_offsets(parts: ConsoleParts, person: Person, form: Form) -> list[Outcome]:
    group = form.exact("group")
    described = await describe_group(parts, person, group)
    if described.members:
        raise BadForm(f"group {group} has {len(described.members)} members: stop them first")
    partitions = _partitions(parts, form)
    wanted = await _wanted(parts, person, form, group, partitions)
    offsets = await _within_the_log(parts, person, wanted)
    body = {
        "group_id": group,
        "member_id": "",
        "topics": [
            {
                "name": form.text("topic"),
                "partitions": [
                    {
                        "partition_index": tp.partition,
                        "committed_offset": offset,
                        "committed_metadata": "",
                    }
                    for tp, offset in offsets.items()
                ],
            }
        ],
    }
    at = parts.requests.coordinator_of_group(group)
    answer = await parts.requests.ask(person, OFFSET_COMMIT, body, at)
    return [
        outcome(
            str(tp := TopicPartition(topic["name"], one["partition_index"])),
            f"goes on at offset {offsets[tp]}",
            one["error_code"],
        )
        for topic in answer["topics"]
        for one in topic["partitions"]
    ]


def _partitions(parts: ConsoleParts, form: Form) -> list[TopicPartition]:
    name = form.text("topic")
    topic = parts.image.topics.get(name)
    if topic is None:
        raise BadForm(f"there is no topic {name}")
    if form.text("partition", ""):
        return [TopicPartition(name, form.number("partition", 0, topic.partition_count - 1))]
    return [TopicPartition(name, one) for one in range(topic.partition_count)]


async def _wanted(
    parts: ConsoleParts, person: Person, form: Form, group: str, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the offsets that the form asks for, which may lie outside of the logs."""
    where = form.text("to")
    if where == "offset":
        return dict.fromkeys(partitions, form.number("at", 0, 2**63 - 1))
    if where == "shift":
        by = form.number("at", -(2**62), 2**62)
        committed = await committed_offsets(parts, person, group)
        return {tp: committed[tp] + by for tp in partitions if tp in committed}
    if where == "time":
        try:
            timestamp = moment_ms(form.text("at"))
        except BadQuestion as error:
            raise BadForm(str(error)) from error
    elif where in _BOUNDS:
        timestamp = _BOUNDS[where]
    else:
        raise BadForm(f"to {where!r}: nothing that can be done")
    found = await _offsets(parts, person, partitions, timestamp)
    if any(offset < 0 for offset in found.values()):
        ends = await _offsets(parts, person, partitions, LATEST)
        found = {tp: offset if offset >= 0 else ends[tp] for tp, offset in found.items()}
    return found


async def _within_the_log(
    parts: ConsoleParts, person: Person, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the offsets, moved to the ends of the logs where they lie outside."""
    starts = await _offsets(parts, person, list(wanted), EARLIEST)
    ends = await _offsets(parts, person, list(wanted), LATEST)
    return {tp: min(max(offset, starts[tp]), ends[tp]) for tp, offset in wanted.items()}


async def _offsets(
    parts: ConsoleParts, person: Person, partitions: list[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    offsets, failed = await list_offsets(parts.requests, person, partitions, timestamp)
    if failed:
        tp, reason = next(iter(failed.items()))
        raise AskFailed(f"{tp}: {reason}")
    return offsets


async def delete_group(parts: ConsoleParts, person: Person, form: Form) -> list[Outcome]:
    group = form.exact("group")
    form.require_confirmed(group)
    at = parts.requests.coordinator_of_group(group)
    answer = await parts.requests.ask(person, DELETE_GROUPS, {"groups_names": [group]}, at)
    return [
        Outcome(
            f"group {one['group_id']}",
            "deleted",
            error_name(one["error_code"]) if one["error_code"] else "",
        )
        for one in answer["results"]
    ]
