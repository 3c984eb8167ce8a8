"""What carries out configurations, ACLs, quotas, tokens and credentials, wherever that is (F6)."""

from collections.abc import Callable
from dataclasses import dataclass

from broker.control.changes import (
    ALTER_CLIENT_QUOTAS,
    ALTER_CONFIGS,
    ALTER_USER_SCRAM_CREDENTIALS,
    CREATE_ACLS,
    CREATE_DELEGATION_TOKEN,
    DELETE_ACLS,
    EXPIRE_DELEGATION_TOKEN,
    INCREMENTAL_ALTER_CONFIGS,
    RENEW_DELEGATION_TOKEN,
)
from broker.controller.acl_requests import AclRequests
from broker.controller.config_requests import ConfigRequests
from broker.controller.event_queue import EventQueue
from broker.controller.implementations import Implementations
from broker.controller.managers.office import Office
from broker.controller.quota_requests import QuotaRequests
from broker.controller.rounds import Rounds
from broker.controller.scram_requests import ScramRequests
from broker.controller.token_requests import TokenRequests
from broker.controller.writer import Writer
from broker.dynamic_config import LiveConfiguration
from broker.quota.config import (
    CONTROLLER_QUOTA_WINDOW_NUM,
    CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS,
)
from broker.quota.windowed_rate import QuotaWindow
from broker.security.token_keys import Keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What it takes, whoever writes. ``clock_ms``: wall clock, milliseconds since the epoch.

    ``draw_id`` gives an id that nothing ever had.
    """

    config: LiveConfiguration
    clock_ms: Callable[[], int]
    token_keys: Callable[[], Keys]
    draw_id: Callable[[], str]


class Administration:
    """The bridged changes: at a controller, and at any broker at inter_broker_protocol 1."""

    def __init__(
        self,
        means: Means,
        *,
        office: Office,
        writer: Writer,
        events: EventQueue,
        together: bool = True,
    ) -> None:
        """``together``: requests that wait share rounds."""
        rounds = Rounds(writer, events, together=together)
        self._acls = AclRequests(office, rounds)
        self._configs = ConfigRequests(office, rounds)
        window = QuotaWindow(
            means.config[CONTROLLER_QUOTA_WINDOW_NUM],
            means.config[CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS],
        )
        self.quotas = QuotaRequests(office, writer, events, rounds, window)
        self._scram = ScramRequests(office, rounds)
        self.tokens = TokenRequests(
            office=office,
            config=means.config,
            writer=writer,
            events=events,
            rounds=rounds,
            keys=means.token_keys,
            clock_ms=means.clock_ms,
            draw_id=means.draw_id,
        )

    def add_to(self, found: Implementations) -> None:
        found.add(CREATE_ACLS, self._acls.create)
        found.add(DELETE_ACLS, self._acls.delete)
        found.add(ALTER_CLIENT_QUOTAS, self.quotas.alter)
        found.add(ALTER_CONFIGS, self._configs.replace)
        found.add(INCREMENTAL_ALTER_CONFIGS, self._configs.alter)
        found.add(ALTER_USER_SCRAM_CREDENTIALS, self._scram.alter)
        found.add(CREATE_DELEGATION_TOKEN, self.tokens.create)
        found.add(RENEW_DELEGATION_TOKEN, self.tokens.renew)
        found.add(EXPIRE_DELEGATION_TOKEN, self.tokens.expire)
