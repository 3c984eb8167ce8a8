"""Delegation tokens: changes them on request, and removes them once they have expired (KIP-48)."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from quorate.broker.changes import table
from quorate.broker.common.errors import CODE_OF_RESULT, KafkaError
from quorate.broker.config.tokens import (
    DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS,
    DELEGATION_TOKEN_EXPIRY_TIME_MS,
    DELEGATION_TOKEN_MAX_LIFETIME_MS,
)
from quorate.broker.controller.command_pipeline import (
    CommandPipeline,
    DecisionWriter,
    PendingDecision,
)
from quorate.broker.controller.managers import token_manager
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.token_manager import Lifetimes, TokenDecision
from quorate.broker.controller.requests.administration_requests import AdministrationContext
from quorate.broker.controller.tenure import (
    EventPriority,
    EventQueue,
    Requester,
    TenureEnded,
    Writer,
)
from quorate.broker.security.token_access import check_enabled, described, requester_of
from quorate.broker.security.token_secrets import SecretKeys, TokenIndex, secret_of
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import ResultCode
from quorate.quorum.quorum_errors import QuorumError
from quorate_proto.v1 import admin_pb2

log = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 5
"""The attempts at one token that others change at the same time."""


class TokenRequests:
    """The handlers of changes to delegation tokens, and the removal of expired ones."""

    def __init__(
        self,
        context: AdministrationContext,
        *,
        tenure: ControllerTenure,
        writer: Writer,
        events: EventQueue,
        decisions: DecisionWriter,
    ) -> None:
        self._context = context
        self._tenure = tenure
        self._writer = writer
        self._events = events
        self._decisions = decisions
        self._lifetimes = Lifetimes(
            context.config[DELEGATION_TOKEN_MAX_LIFETIME_MS],
            context.config[DELEGATION_TOKEN_EXPIRY_TIME_MS],
        )
        self._interval_ms = context.config[DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS]
        self._index = TokenIndex()
        self._removing: asyncio.Task[None] | None = None

    def register(self, pipeline: CommandPipeline) -> None:
        """Handle these changes in ``pipeline``."""
        pipeline.register(table.CREATE_DELEGATION_TOKEN, self.create)
        pipeline.register(table.RENEW_DELEGATION_TOKEN, self.renew)
        pipeline.register(table.EXPIRE_DELEGATION_TOKEN, self.expire)

    def start(self) -> None:
        """Remove expired tokens from time to time."""
        self._removing = asyncio.create_task(self._remove_for_ever(), name="token-expiry")

    def close(self) -> None:
        if self._removing is not None:
            self._removing.cancel()

    # -- on request ------------------------------------------------------------------------------

    async def create(
        self, request: admin_pb2.CreateDelegationTokenRequest, requester: Requester
    ) -> admin_pb2.CreateDelegationTokenResponse:
        """Create a token. Its secret is only in the answer."""
        keys = self._keys_for(request.context)
        decision = await self._write(
            lambda _: token_manager.create(
                request,
                tenure=self._tenure,
                now_ms=self._context.clock_ms(),
                token_id=self._context.draw_id(),
                lifetimes=self._lifetimes,
            ),
            requester,
        )
        secret = secret_of(keys[0], decision.token_id)
        return admin_pb2.CreateDelegationTokenResponse(
            token=described(decision.token_id, decision.token, secret), hmac=secret
        )

    async def renew(
        self, request: admin_pb2.RenewDelegationTokenRequest, requester: Requester
    ) -> admin_pb2.RenewDelegationTokenResponse:
        """Renew a token."""
        keys = self._keys_for(request.context)
        decision = await self._write(
            lambda image: token_manager.renew(
                image,
                request,
                tenure=self._tenure,
                now_ms=self._context.clock_ms(),
                token_id=self._index.find(image, keys, request.hmac),
                lifetimes=self._lifetimes,
            ),
            requester,
        )
        return admin_pb2.RenewDelegationTokenResponse(expiry_ms=decision.token.expiry_ms)

    async def expire(
        self, request: admin_pb2.ExpireDelegationTokenRequest, requester: Requester
    ) -> admin_pb2.ExpireDelegationTokenResponse:
        """Expire a token, now or at another time."""
        keys = self._keys_for(request.context)
        decision = await self._write(
            lambda image: token_manager.expire(
                image,
                request,
                tenure=self._tenure,
                now_ms=self._context.clock_ms(),
                token_id=self._index.find(image, keys, request.hmac),
            ),
            requester,
        )
        return admin_pb2.ExpireDelegationTokenResponse(expiry_ms=decision.token.expiry_ms)

    def _keys_for(self, context: admin_pb2.RequestContext) -> SecretKeys:
        """Return the keys in force.

        Raises:
            KafkaError: The requester may have no tokens, or tokens are not enabled.
        """
        requester_of(context)
        keys = self._context.token_keys()
        check_enabled(keys)
        return keys

    async def _write(
        self, decide: Callable[[Image], TokenDecision], requester: Requester
    ) -> TokenDecision:
        """Decide and write. Repeat if somebody else changed the token in between.

        Raises:
            KafkaError: The change is refused.
            TenureEnded, QuorumError: what ``Writer.commit`` raises.
        """
        for _ in range(ATTEMPTS_MAX):
            decision, (result,) = await self._decisions.write(
                lambda image: PendingDecision(made := decide(image), [made.operation]), requester
            )
            if result.ok:
                return decision
            if result.code is not ResultCode.CONDITION_FAILED:
                break
        raise KafkaError(CODE_OF_RESULT[result.code], result.detail)

    # -- automatic removal -----------------------------------------------------------------------

    async def _remove_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            try:
                await self._events.run(EventPriority.ADMIN, self._remove_ended)
            except TenureEnded:
                return
            except QuorumError as error:
                log.warning("ended tokens stay until the quorum answers: %s", error)

    async def _remove_ended(self) -> None:
        image = self._writer.image
        operations = token_manager.removals(
            image, tenure=self._tenure, now_ms=self._context.clock_ms()
        )
        results = await self._writer.commit(operations)
        if results:
            ended = sum(result.ok for result in results)
            log.info("%d delegation tokens have ended and are removed", ended)
