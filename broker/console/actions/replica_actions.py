"""Moving the replicas of a topic's partitions, and cancelling moves that are not done."""

from collections.abc import Mapping
from typing import Final

from quorate.broker.console.actions.action import outcome
from quorate.broker.console.actions.form import BadForm, Form, Outcome
from quorate.broker.console.asking.console_apis import ALTER_PARTITION_REASSIGNMENTS
from quorate.broker.console.asking.person import Person
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.pages.formats import count
from quorate.broker.console.views.replica_plan import BadPlan, Replicas, read_plan
from quorate.common.acl_types import AclOperation

TIMEOUT_MS: Final = 10_000


async def move_replicas(parts: ConsoleParts, person: Person, form: Form) -> list[Outcome]:
    topic = form.text("topic")
    try:
        plan = read_plan(form.raw("plan"))
    except BadPlan as error:
        raise BadForm(str(error)) from error
    return await _reassign(parts, person, topic, plan, "on the way to their new replicas")


async def cancel_moves(parts: ConsoleParts, person: Person, form: Form) -> list[Outcome]:
    """Cancel the move of one partition, or all moves of the topic."""
    topic = form.text("topic")
    if form.text("partition", ""):
        numbers = [form.number("partition")]
    elif parts.rights(person).may_topic(AclOperation.DESCRIBE, topic):
        numbers = sorted(parts.image.reassignments.get(topic) or ())
    else:
        numbers = []
    if not numbers:
        raise BadForm(f"no partition of {topic} is being moved")
    return await _reassign(
        parts, person, topic, dict.fromkeys(numbers), "back to their old replicas"
    )


async def _reassign(
    parts: ConsoleParts,
    person: Person,
    topic: str,
    targets: Mapping[int, Replicas | None],
    done: str,
) -> list[Outcome]:
    """Ask for all targets at once. What is refused has a line of its own."""
    partitions = [
        {"partition_index": number, "replicas": None if replicas is None else list(replicas)}
        for number, replicas in targets.items()
    ]
    body = {
        "timeout": TIMEOUT_MS,
        "allow_replication_factor_change": True,
        "topics": [{"name": topic, "partitions": partitions}],
    }
    answer = await parts.requests.ask(person, ALTER_PARTITION_REASSIGNMENTS, body)
    if answer["error_code"]:
        return [outcome(f"topic {topic}", "", answer["error_code"], answer["error_message"])]
    results = [one for of_topic in answer["responses"] for one in of_topic["partitions"]]
    refused = [
        outcome(f"{topic}-{one['partition_index']}", "", one["error_code"], one["error_message"])
        for one in results
        if one["error_code"]
    ]
    begun = len(results) - len(refused)
    return (
        [Outcome(f"{count(begun, 'partition')} of {topic}", done), *refused] if begun else refused
    )
