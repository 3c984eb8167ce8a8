"""The quorum and the controller."""

from quorate.broker.common.errors import error_name
from quorate.broker.console.asking.console_apis import DESCRIBE_QUORUM
from quorate.broker.console.asking.local_requests import AskFailed
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.pages.formats import duration, number, when
from quorate.broker.console.pages.markup import Html, h, url
from quorate.broker.console.pages.overview_page import QUORUM_REQUEST
from quorate.broker.console.pages.page import LIVE_EVERY_S, Page, PageRequest, Section
from quorate.broker.console.pages.parts import Column, facts, note, panel, pill, table
from quorate.broker.console.views.quorum_view import SILENT_MS, QuorumView, VoterRow, quorum_view
from quorate.metadata_log.image import Image


async def quorum_page(parts: ConsoleParts, request: PageRequest) -> Page:
    try:
        answer = await parts.requests.ask(request.person, DESCRIBE_QUORUM, QUORUM_REQUEST)
        view = quorum_view(answer, parts.wall_clock_ms())
        reason = answer.get("error_message") or error_name(answer["error_code"])
    except AskFailed as error:
        view, reason = None, str(error)
    shown = note(reason, kind="serious") if view is None else _quorum(view)
    return Page(
        "Quorum",
        "quorum",
        (
            Section("quorum", panel("Voters", shown), live=True),
            Section("controller", _controller(parts.image), live=True),
        ),
        live_every_s=LIVE_EVERY_S,
    )


def _quorum(view: QuorumView) -> Html:
    known = facts(
        [
            ("Leader", f"voter {view.leader}" if view.leader >= 0 else pill("none", "critical")),
            ("Term", number(view.term)),
            ("Committed up to", number(view.commit_offset)),
        ]
    )
    columns = (
        Column("Voter"),
        Column("Role"),
        Column("Addresses"),
        Column("Log end", numeric=True),
        Column("Behind", numeric=True),
        Column("Last heard of", numeric=True),
    )
    return Html(known + table(columns, map(_row, view.voters)))


def _row(voter: VoterRow) -> list[Html | str]:
    is_silent = voter.silent_ms is not None and voter.silent_ms > SILENT_MS
    heard = "—" if voter.silent_ms is None else f"{duration(voter.silent_ms)} ago"
    if voter.role == "leader":
        heard = "leads"
    return [
        f"voter {voter.voter_id}",
        pill(voter.role, "note" if voter.role == "leader" else ""),
        voter.address,
        number(voter.log_end_offset) if voter.log_end_offset >= 0 else "—",
        number(voter.behind),
        pill(heard, "serious") if is_silent else heard,
    ]


def _controller(image: Image) -> Html:
    controller = image.controller
    if controller is None:
        return panel("Controller", note("No broker is the controller now.", kind="critical"))
    broker = str(controller.broker_id)
    return panel(
        "Controller",
        facts(
            [
                ("Active controller", h("a", f"broker {broker}", href=url("brokers", broker))),
                ("Controller epoch", number(image.controller_epoch)),
                ("Since", f"{when(controller.timestamp_ms)} UTC"),
                ("Metadata offset", number(image.offset)),
                ("metadata_version", number(image.metadata_version)),
                ("inter_broker_protocol", number(image.inter_broker_protocol)),
                ("transaction.version", number(image.transaction_version)),
            ]
        ),
    )
