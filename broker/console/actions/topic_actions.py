"""Creating, growing and deleting topics, and electing leaders."""

from typing import Final

from quorate.broker.console.actions.action import outcome
from quorate.broker.console.actions.form import Form, Outcome
from quorate.broker.console.asking.console_apis import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    ELECT_LEADERS,
)
from quorate.broker.console.asking.person import Person
from quorate.broker.console.console_parts import ConsoleParts
from quorate_proto.v1 import errors_pb2

TIMEOUT_MS: Final = 10_000


async def create_topic(parts: ConsoleParts, person: Person, form: Form) -> list[Outcome]:
    name = form.text("name")
    topic = {
        "name": name,
        "num_partitions": form.number("partitions", 1, 100_000),
        "replication_factor": form.number("replication", 1, 1_000),
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in form.pairs("configs").items()],
    }
    body = {"topics": [topic], "timeout": TIMEOUT_MS, "validate_only": False}
    answer = await parts.requests.ask(person, CREATE_TOPICS, body)
    return [
        outcome(f"topic {one['name']}", "created", one["error_code"], one["error_message"])
        for one in answer["topics"]
    ]


async def delete_topic(parts: ConsoleParts, person: Person, form: Form) -> list[Outcome]:
    name = form.text("topic")
    form.require_confirmed(name)
    body = {"topic_names": [name], "timeout": TIMEOUT_MS}
    answer = await parts.requests.ask(person, DELETE_TOPICS, body)
    return [
        outcome(f"topic {one['name']}", "deleted", one["error_code"], one["error_message"])
        for one in answer["responses"]
    ]


async def add_partitions(parts: ConsoleParts, person: Person, form: Form) -> list[Outcome]:
    count = form.number("count", 1, 100_000)
    topic = {"name": form.text("topic"), "count": count, "assignments": None}
    body = {"topics": [topic], "timeout": TIMEOUT_MS, "validate_only": False}
    answer = await parts.requests.ask(person, CREATE_PARTITIONS, body)
    return [
        outcome(
            f"topic {one['name']}",
            f"has {count} partitions",
            one["error_code"],
            one["error_message"],
        )
        for one in answer["results"]
    ]


async def elect_leaders(parts: ConsoleParts, person: Person, form: Form) -> list[Outcome]:
    name = form.text("topic")
    topic = parts.image.topics.get(name)
    every = list(range(0 if topic is None else topic.partition_count))
    numbers = [form.number("partition")] if form.text("partition", "") else every
    body = {
        "election_type": form.number("election", 0, 1),
        "topic_partitions": [{"topic": name, "partitions": numbers}],
        "timeout": TIMEOUT_MS,
    }
    answer = await parts.requests.ask(person, ELECT_LEADERS, body)
    if answer["error_code"]:
        return [outcome(f"topic {name}", "", answer["error_code"])]
    results = [
        (of["topic"], one)
        for of in answer["replica_election_results"]
        for one in of["partition_result"]
    ]
    done = sum(not one["error_code"] for _, one in results)
    changed = [Outcome(f"topic {name}", f"{done} leaders elected")] if done or not results else []
    return changed + [
        outcome(f"{of}-{one['partition_id']}", "", one["error_code"], one["error_message"])
        for of, one in results
        if one["error_code"] not in _NOTHING_TO_DO
    ]


_NOTHING_TO_DO: Final = frozenset({errors_pb2.NONE, errors_pb2.ELECTION_NOT_NEEDED})
