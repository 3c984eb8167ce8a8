"""Delegation tokens at the controller: requests carried out, and ended tokens removed (KIP-48)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from broker.control.changes import (
    CREATE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
    A,
    Change,
    Q,
)
from broker.controller.event_queue import EventQueue, LeftOffice, Priority
from broker.controller.managers import tokens
from broker.controller.managers.office import Office
from broker.controller.managers.tokens import Lifetimes, TokenDecision
from broker.controller.rounds import Decided, Rounds
from broker.controller.writer import Writer
from broker.dynamic_config import LiveConfiguration
from broker.errors import CODE_OF_RESULT, KafkaError
from broker.security.token_access import check_enabled, described, requester_of
from broker.security.token_config import (
    DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS,
    DELEGATION_TOKEN_EXPIRY_TIME_MS,
    DELEGATION_TOKEN_MAX_LIFETIME_MS,
)
from broker.security.token_keys import Keys
from broker.security.token_secrets import TokenIndex, secret_of
from metadata_log.image import Image
from metadata_log.records import ResultCode
from quorate_proto.v1 import admin_pb2, errors_pb2
from quorum.errors import QuorumError, SessionLost

log = logging.getLogger(__name__)

ROUNDS_MAX: Final = 5
"""Attempts at one token that others change at the same time."""


class TokenRequests:
    """The tokens of one controller's tenure.

    ``keys``: those in force, newest first. ``clock_ms``: wall clock, milliseconds since the epoch.
    ``draw_id``: an id that no token ever had.
    """

    def __init__(
        self,
        *,
        office: Office,
        config: LiveConfiguration,
        writer: Writer,
        events: EventQueue,
        rounds: Rounds,
        keys: Callable[[], Keys],
        clock_ms: Callable[[], int],
        draw_id: Callable[[], str],
    ) -> None:
        self._office = office
        self._writer = writer
        self._events = events
        self._rounds = rounds
        self._keys = keys
        self._clock_ms = clock_ms
        self._draw_id = draw_id
        self._lifetimes = Lifetimes(
            config[DELEGATION_TOKEN_MAX_LIFETIME_MS], config[DELEGATION_TOKEN_EXPIRY_TIME_MS]
        )
        self._interval_ms = config[DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS]
        self._index = TokenIndex()
        self._removing: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._removing = asyncio.create_task(self._remove_for_ever(), name="token-expiry")

    def close(self) -> None:
        if self._removing is not None:
            self._removing.cancel()

    # -- asked for -------------------------------------------------------------------------------

    async def create(
        self, request: admin_pb2.CreateDelegationTokenRequest
    ) -> admin_pb2.CreateDelegationTokenResponse:
        """Make a token; its secret is in the answer, and nowhere else."""

        async def create(keys: Keys) -> admin_pb2.CreateDelegationTokenResponse:
            decision = await self._write(
                lambda _: tokens.create(
                    request,
                    office=self._office,
                    now_ms=self._clock_ms(),
                    token_id=self._draw_id(),
                    lifetimes=self._lifetimes,
                )
            )
            secret = secret_of(keys[0], decision.token_id)
            return admin_pb2.CreateDelegationTokenResponse(
                token=described(decision.token_id, decision.token, secret), hmac=secret
            )

        return await self._carry_out(CREATE_DELEGATION_TOKEN, request, create)

    async def renew(
        self, request: admin_pb2.RenewDelegationTokenRequest
    ) -> admin_pb2.RenewDelegationTokenResponse:
        """Let a token live longer."""

        async def renew(keys: Keys) -> admin_pb2.RenewDelegationTokenResponse:
            decision = await self._write(
                lambda image: tokens.renew(
                    image,
                    request,
                    office=self._office,
                    now_ms=self._clock_ms(),
                    token_id=self._index.find(image, keys, request.hmac),
                    lifetimes=self._lifetimes,
                )
            )
            return admin_pb2.RenewDelegationTokenResponse(expiry_ms=decision.token.expiry_ms)

        return await self._carry_out(RENEW_DELEGATION_TOKEN, request, renew)

    async def expire(
        self, request: admin_pb2.ExpireDelegationTokenRequest
    ) -> admin_pb2.ExpireDelegationTokenResponse:
        """Let a token end, now or at another time."""

        async def expire(keys: Keys) -> admin_pb2.ExpireDelegationTokenResponse:
            decision = await self._write(
                lambda image: tokens.expire(
                    image,
                    request,
                    office=self._office,
                    now_ms=self._clock_ms(),
                    token_id=self._index.find(image, keys, request.hmac),
                )
            )
            return admin_pb2.ExpireDelegationTokenResponse(expiry_ms=decision.token.expiry_ms)

        return await self._carry_out(EXPIRE_DELEGATION_TOKEN, request, expire)

    async def _carry_out(
        self, change: Change[Q, A], request: Q, work: Callable[[Keys], Awaitable[A]]
    ) -> A:
        try:
            requester_of(request.context)
            keys = self._keys()
            check_enabled(keys)
            return await work(keys)
        except KafkaError as error:
            return change.failed(request, error.code, error.message)
        except SessionLost:
            raise
        except QuorumError as error:
            log.warning("%s without an answer: %s", change.rpc, error)
            return change.failed(
                request,
                errors_pb2.REQUEST_TIMED_OUT,
                f"the metadata quorum did not answer: {error}",
            )

    async def _write(self, decide: Callable[[Image], TokenDecision]) -> TokenDecision:
        """Decide and write; again if somebody else changed the token in between.

        Raises:
            KafkaError: refused. LeftOffice, QuorumError: as ``Writer.commit``.
        """
        for _ in range(ROUNDS_MAX):
            decision, (result,) = await self._rounds.write(
                lambda image: Decided(made := decide(image), [made.operation])
            )
            if result.ok:
                return decision
            if result.code is not ResultCode.CONDITION_FAILED:
                break
        raise KafkaError(CODE_OF_RESULT[result.code], result.detail)

    # -- by itself -------------------------------------------------------------------------------

    async def _remove_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            try:
                await self._events.run(Priority.ADMIN, self._remove_ended)
            except LeftOffice:
                return
            except QuorumError as error:
                log.warning("ended tokens stay until the quorum answers: %s", error)

    async def _remove_ended(self) -> None:
        image = self._writer.image
        operations = tokens.removals(image, office=self._office, now_ms=self._clock_ms())
        results = await self._writer.commit(operations)
        if results:
            ended = sum(result.ok for result in results)
            log.info("%d delegation tokens have ended and are removed", ended)
