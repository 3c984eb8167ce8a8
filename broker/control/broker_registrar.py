"""Registers this broker with the quorum, and again after every lost session (B3).

The broker epoch is the metadata offset of the registration. It is not known until the quorum has
answered, and no longer known once the session is lost: control requests are refused meanwhile (B2).
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.control.ports import Sessions
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.common.types import BrokerEpoch, Endpoint
from quorate.metadata_log.features import (
    BROKER_HISTORY,
    NEWEST_INTER_BROKER_PROTOCOL,
    NEWEST_METADATA_VERSION,
)
from quorate.metadata_log.image import Changes, Image
from quorate.metadata_log.records import (
    BrokerRegistration,
    Listener,
    LostReplica,
    Operation,
    OperationResult,
    Record,
    ReplicasLost,
    ResultCode,
)
from quorate.metadata_log.rules.broker_history import LOST_REPLICAS_MAX
from quorate.quorum.quorum_errors import OutcomeUnknown, QuorumUnavailable, SessionLost

log = logging.getLogger(__name__)

RETRY_INTERVAL_MS: Final = 200
"""The pause between two attempts while the id is taken or the quorum is unavailable."""

RETRY_AFTER_FAULT_MS: Final = 5_000

LOG_EVERY_ATTEMPTS: Final = 25
"""The number of attempts per log line, so that a waiting broker logs every five seconds."""


class RegistrationRefused(Exception):
    """Raised when the quorum will never accept this registration. The message says why."""


class BrokerRegistrar:
    """Keeps this process registered.

    ``listeners`` are the addresses for clients, at least one. ``log_may_be_lost`` (rule 8) is
    declared by every registration of this process until a controller has handled one of them. So
    are ``lost_replicas``, which are lost on a broker that has the rest of its log.
    """

    def __init__(
        self,
        quorum: Sessions,
        *,
        identity: BrokerIdentity,
        listeners: Sequence[Listener],
        grpc: Endpoint,
        images: MetadataFollower,
        inter_broker: Endpoint | None = None,
        rack: str = "",
        log_may_be_lost: bool = False,
        lost_replicas: Sequence[LostReplica] = (),
        inter_broker_protocol_max: int = NEWEST_INTER_BROKER_PROTOCOL,
        retry_interval_ms: int = RETRY_INTERVAL_MS,
    ) -> None:
        self._identity = identity
        self._quorum = quorum
        self._listeners = tuple(listeners)
        self._grpc = grpc
        self._inter_broker = inter_broker
        self._images = images
        self._rack = rack
        self._log_may_be_lost = log_may_be_lost
        self._lost_replicas = tuple(lost_replicas)
        self._inter_broker_protocol_max = inter_broker_protocol_max
        self._retry_interval_ms = retry_interval_ms
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> BrokerEpoch:
        """Register, then keep registered until ``close``; return the first epoch.

        Raises:
            RegistrationRefused: the registration itself is invalid.
        """
        self._quorum.on_session_lost(self._on_session_lost)
        self._images.subscribe(self._on_image, "brokers")
        epoch = await self._register()
        self._task = asyncio.create_task(self._keep_registered(), name="broker-registrar")
        return epoch

    async def close(self) -> None:
        """Stop registering. The registration itself ends with the session."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _on_image(self, image: Image, _changes: Changes) -> None:
        """Stop declaring a loss once a controller has removed this broker from all ISRs (rule
        8)."""
        mine = image.brokers.get(self._identity.broker_id)
        if mine is not None and mine.admitted and mine.epoch == self._identity.epoch:
            self._log_may_be_lost = False
            self._lost_replicas = ()

    def _on_session_lost(self) -> None:
        log.warning("broker %d lost its session and registers again", self._identity.broker_id)
        self._identity.unregister()
        self._lost.set()

    async def _keep_registered(self) -> None:
        while True:
            await self._lost.wait()
            self._lost.clear()
            try:
                await self._renew()
                await self._register()
            except Exception:  # if this task ended, the broker would never register again
                log.exception("broker %d could not register again", self._identity.broker_id)
                await asyncio.sleep(RETRY_AFTER_FAULT_MS / 1000)
                self._lost.set()

    async def _renew(self) -> None:
        while True:
            try:
                await self._quorum.renew_session()
            except QuorumUnavailable as error:
                log.warning("no new session yet: %s", error)
                await asyncio.sleep(self._retry_interval_ms / 1000)
            else:
                return

    async def _register(self) -> BrokerEpoch:
        attempts = 0
        while True:
            outcome = await self._attempt()
            if outcome is not None and outcome.ok:
                epoch = BrokerEpoch(outcome.version)
                self._identity.register(epoch)
                log.info("broker %d is registered with epoch %d", self._identity.broker_id, epoch)
                return epoch
            if outcome is not None and outcome.code is ResultCode.INVALID:
                raise RegistrationRefused(f"broker {self._identity.broker_id}: {outcome.detail}")
            if outcome is not None and outcome.code is ResultCode.SESSION_GONE:
                await self._renew()
            if attempts % LOG_EVERY_ATTEMPTS == 0:
                why = "the quorum does not answer" if outcome is None else outcome.detail
                log.warning("broker %d waits to register: %s", self._identity.broker_id, why)
            attempts += 1
            await asyncio.sleep(self._retry_interval_ms / 1000)

    def _declares_single_replicas(self) -> bool:
        """Return whether the lost replicas are declared one by one. An older quorum, or one that is
        told of too many, takes the whole log for lost."""
        is_known = self._images.image.metadata_version >= BROKER_HISTORY
        return is_known and 0 < len(self._lost_replicas) <= LOST_REPLICAS_MAX

    async def _attempt(self) -> OperationResult | None:
        """Return the quorum's answer, or None if there was none and the attempt must be
        repeated."""
        single = self._declares_single_replicas()
        record = BrokerRegistration(
            broker_id=self._identity.broker_id,
            session_id=self._quorum.session_id,
            incarnation_id=self._identity.incarnation_id,
            kafka=self._listeners[0].endpoint,
            grpc=self._grpc,
            inter_broker=self._inter_broker,
            rack=self._rack,
            log_may_be_lost=self._log_may_be_lost or bool(self._lost_replicas and not single),
            inter_broker_protocol_max=self._inter_broker_protocol_max,
            metadata_version_max=NEWEST_METADATA_VERSION,
            listeners=self._listeners,
        )
        records: tuple[Record, ...] = (record,)
        if single:
            records += (
                ReplicasLost(
                    broker_id=record.broker_id,
                    session_id=record.session_id,
                    replicas=self._lost_replicas,
                ),
            )
        try:
            result = await self._quorum.transact([Operation(records=records)])
        except (QuorumUnavailable, OutcomeUnknown) as error:
            log.debug("registration: %s", error)
            return None
        except SessionLost as error:
            return OperationResult(code=ResultCode.SESSION_GONE, detail=str(error))
        return result.results[0]
