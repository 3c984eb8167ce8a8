"""Changes of SCRAM credentials at the controller."""

from broker.controller.event_queue import LeftOffice
from broker.controller.managers import scram
from broker.controller.managers.office import Office
from broker.controller.rounds import Rounds
from quorate_proto.v1 import admin_pb2, errors_pb2
from quorum.errors import SessionLost


class ScramRequests:
    """Taken in, decided, written, answered user by user."""

    def __init__(self, office: Office, rounds: Rounds) -> None:
        self._office = office
        self._rounds = rounds

    async def alter(
        self, request: admin_pb2.AlterUserScramCredentialsRequest
    ) -> admin_pb2.AlterUserScramCredentialsResponse:
        """Set and remove credentials; brokers learn of it by watch."""
        try:
            decisions = await self._rounds.carry_out(
                lambda image: scram.alter(image, request, office=self._office)
            )
        except (LeftOffice, SessionLost):
            code = errors_pb2.NOT_CONTROLLER
            return admin_pb2.AlterUserScramCredentialsResponse(error_code=code)
        results = [decision.result for decision in decisions]
        return admin_pb2.AlterUserScramCredentialsResponse(results=results)
