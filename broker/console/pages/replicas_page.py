"""The replicas of a topic: what is on the move, and a plan that moves them."""

from collections.abc import Iterator, Mapping
from typing import Final

from quorate.broker.console.asking.replica_sizes import replica_sizes
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.pages.formats import count, number, size
from quorate.broker.console.pages.markup import Html, h, lines, url
from quorate.broker.console.pages.page import PageRequest, Section
from quorate.broker.console.pages.parts import (
    Column,
    action_form,
    checkbox,
    field,
    ids,
    meter,
    note,
    number_input,
    page_of,
    pager,
    panel,
    query_form,
    table,
    text_input,
    unfolding,
)
from quorate.broker.console.views.replica_plan import (
    BadPlan,
    Plan,
    by_broker,
    chosen_partitions,
    new_copies,
    plan_text,
    proposed_plan,
)
from quorate.common.acl_types import AclOperation
from quorate.common.types import NO_BROKER, BrokerId
from quorate.metadata_log.partitions import Reassignment, Topic

_COLUMNS: Final = (
    Column("Partition"),
    Column("Leader"),
    Column("In sync"),
    Column("Adding"),
    Column("Removing"),
    Column("Copied", wide=True),
)
_LINES_SHOWN: Final = 20


async def replica_sections(
    parts: ConsoleParts, request: PageRequest, topic: Topic
) -> list[Section]:
    """Return what is on the move, the form that cancels it, and the forms that plan and move."""
    moving = await _moving(parts, request, topic)
    live = Section("moving", panel("On the move", *moving), live=True)
    if request.only_live:  # A plan for 100,000 partitions takes hundreds of milliseconds.
        return [live]
    return [
        live,
        Section("cancel", unfolding("Cancel moves", _cancel_form(request, topic))),
        Section("plan", panel("Move replicas", *_planned(parts, request, topic))),
    ]


# -- what is on the move -------------------------------------------------------------------------


async def _moving(parts: ConsoleParts, request: PageRequest, topic: Topic) -> list[Html]:
    if not parts.rights(request.person).may_cluster(AclOperation.DESCRIBE, log_denied=False):
        return [note("What is on the move needs DESCRIBE of the cluster.", kind="serious")]
    pending = sorted((parts.image.reassignments.get(topic.name) or {}).items())
    page, place = page_of(pending, request.asked("page", "1"))
    shown = [(one, move) for one, move in pending[place] if one < topic.partition_count]
    wanted = by_broker(_copies(topic, shown))
    sizes = await replica_sizes(parts.requests, request.person, topic.name, wanted)
    rows = [_row(topic, one, move, sizes) for one, move in shown]
    pages = pager(("topics", topic.name, "replicas"), {}, page, len(pending), "move")
    return [table(_COLUMNS, rows, "No partition is being moved."), pages]


def _copies(topic: Topic, shown: list[tuple[int, Reassignment]]) -> Iterator[tuple[BrokerId, int]]:
    """Yield the replicas whose sizes tell how far a copy is: the leader's, and the new ones."""
    for one, move in shown:
        leader = topic.partitions[one].leader
        if leader != NO_BROKER:
            yield leader, one
        yield from ((broker, one) for broker in move.adding if broker != leader)


def _row(
    topic: Topic, one: int, move: Reassignment, sizes: Mapping[tuple[BrokerId, int], int]
) -> list[Html | str]:
    partition = topic.partitions[one]
    whole = sizes.get((partition.leader, one))
    copied = [
        h("li", _copied(broker, sizes.get((broker, one)), whole, broker in partition.isr))
        for broker in move.adding
    ]
    return [
        number(one),
        "none" if partition.leader == NO_BROKER else number(partition.leader),
        ids(partition.isr),
        ids(move.adding),
        ids(move.removing),
        h("ul", copied, class_="plain"),
    ]


def _copied(broker: BrokerId, done: int | None, whole: int | None, is_in_sync: bool) -> Html:
    if is_in_sync:
        return h("span", f"broker {broker} is in sync")
    if done is None or not whole:
        return h("span", f"broker {broker} has not begun")
    return meter(done / whole, f"broker {broker}: {size(done)} of {size(whole)}", is_load=False)


def _cancel_form(request: PageRequest, topic: Topic) -> Html:
    return action_form(
        "cancel-moves",
        request.token,
        field("Partition", number_input("partition", "", min=0, placeholder="all")),
        label="Cancel moves",
        hidden={"topic": topic.name, "back": url("topics", topic.name, "replicas")},
        danger=True,
    )


# -- a plan --------------------------------------------------------------------------------------


def _planned(parts: ConsoleParts, request: PageRequest, topic: Topic) -> list[Html]:
    """Return the choice of brokers, and below it the plan once there is a choice."""
    racks = {broker: one.registration.rack for broker, one in parts.image.brokers.items()}
    chosen = {one: rack for one, rack in racks.items() if request.asked(_box(one))}
    replicas = topic.partitions[0].replicas
    factor = request.asked_number("factor", len(replicas), 1, 1_000)
    which = request.asked("partitions")
    form = query_form(
        ("topics", topic.name, "replicas"),
        h(
            "fieldset",
            h("legend", "Brokers", class_="field-label"),
            [
                checkbox(_box(one), f"{one} {racks[one]}".strip(), not chosen or one in chosen)
                for one in sorted(racks)
            ],
        ),
        field("Replicas of each", number_input("factor", factor, min=1)),
        field("Partitions", text_input("partitions", which, placeholder="all, or 0-9, 12")),
        label="Propose a plan",
    )
    if not chosen:
        return [form]
    try:
        wanted = chosen_partitions(which, topic.partition_count)
        plan = proposed_plan(topic, chosen, factor, wanted)
    except BadPlan as error:
        return [form, note(str(error), kind="serious")]
    return [form, *_plan_form(request, topic, plan)]


def _box(broker: BrokerId) -> str:
    return f"broker-{broker}"


def _plan_form(request: PageRequest, topic: Topic, plan: Plan) -> list[Html]:
    if not plan:
        return [note("These partitions are spread over these brokers already.")]
    said = (
        f"{count(len(plan), 'partition')} would change, and "
        f"{count(new_copies(topic, plan), 'replica')} would be copied. The first broker of a line "
        "is the preferred leader. Lines may be changed, added and removed."
    )
    rows = min(len(plan), _LINES_SHOWN)
    area = h("textarea", lines(plan_text(plan)), name="plan", rows=rows, spellcheck="false")
    form = action_form(
        "move-replicas",
        request.token,
        field("Plan", area),
        label="Move",
        hidden={"topic": topic.name, "back": url("topics", topic.name, "replicas")},
    )
    return [note(said), form]
