"""Changes of SCRAM credentials at the controller."""

from broker.controller.managers import scram
from broker.controller.managers.office import Office
from broker.controller.rounds import Rounds
from quorate_proto.v1 import admin_pb2


class ScramRequests:
    """Taken in, decided, written, answered user by user."""

    def __init__(self, office: Office, rounds: Rounds) -> None:
        self._office = office
        self._rounds = rounds

    async def alter(
        self, request: admin_pb2.AlterUserScramCredentialsRequest
    ) -> admin_pb2.AlterUserScramCredentialsResponse:
        """Set and remove credentials; brokers learn of it by watch."""
        decisions = await self._rounds.carry_out(
            lambda image: scram.alter(image, request, office=self._office)
        )
        results = [decision.result for decision in decisions]
        return admin_pb2.AlterUserScramCredentialsResponse(results=results)
