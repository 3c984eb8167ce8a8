"""Random consumers in random order, with a log that fails now and then: what must always hold."""

import random

import pytest

from quorate.broker.coordinator.groups.state.group_basis import GroupLimits, GroupState
from quorate.broker.coordinator.groups.state.group_effects import JoinAnswer, Leaver, Token
from quorate_proto.v1 import errors_pb2
from tests.unit.coordinator.consumers import REBALANCE_MS, World

STEPS = 400


class RandomConsumers:
    """Members that know what they were told, and do anything at any time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(GroupLimits(max_members=8, initial_delay_ms=500))
        self.asked: dict[Token, str | None] = {}
        """Requests by token; joins with the instance id."""
        self.known: dict[str, tuple[int, str | None]] = {}
        """Member id → newest generation it was told, and its instance id."""
        self.assigned: dict[tuple[int, str], bytes] = {}
        """What was told to each member of each generation."""
        self.syncs: dict[Token, tuple[int, str]] = {}
        """Generation and member that asked for an assignment."""
        self.generation_id = 0

    def step(self) -> None:
        often = (self._sync, self._write, self._heartbeat)
        rarely = (self._come, self._again, self._fail, self._leave, self._wait)
        self.random.choice((*often, *often, *rarely))()
        self._listen()

    def settle(self) -> None:
        """Everybody is silent for long enough: nothing may be left hanging."""
        for _ in range(8):
            self.world.write()
            self.world.pass_ms(REBALANCE_MS + 400_000)
        self.world.write()
        self._listen()

    def _pick(self) -> str:
        return self.random.choice([*self.known, "nobody"])

    def _come(self) -> None:
        instance_id = self.random.choice([None, None, "one", "two"])
        token = self.world.join(instance_id=instance_id, needs_known_id=self.random.random() < 0.5)
        self.asked[token] = instance_id

    def _again(self) -> None:
        member_id = self._pick()
        _, instance_id = self.known.get(member_id, (0, None))
        protocols = (("range", self.random.choice([b"a", b"b"])),)
        token = self.world.join(member_id, instance_id=instance_id, protocols=protocols)
        self.asked[token] = instance_id

    def _sync(self) -> None:
        member_id = self._pick()
        generation_id, instance_id = self.known.get(member_id, (0, None))
        members = [each.member_id for each in self.world.group.members]
        nonce = self.random.randbytes(4)
        token = self.world.sync(
            member_id,
            {each: each.encode() + nonce for each in members},
            generation_id=generation_id,
            instance_id=instance_id,
        )
        self.asked[token] = member_id
        self.syncs[token] = generation_id, member_id

    def _write(self) -> None:
        self.world.write()

    def _fail(self) -> None:
        if self.random.random() < 0.2:
            self.world.write(errors_pb2.COORDINATOR_NOT_AVAILABLE)

    def _leave(self) -> None:
        if self.random.random() < 0.5:
            member_id = self._pick()
            _, instance_id = self.known.get(member_id, (0, None))
            self.world.leave(Leaver(member_id, instance_id))

    def _wait(self) -> None:
        self.world.pass_ms(self.random.choice([1, 400, 4_000, 12_000]))

    def _heartbeat(self) -> None:
        member_id = self._pick()
        generation_id, instance_id = self.known.get(member_id, (0, None))
        group = self.world.group
        group.heartbeat(member_id, instance_id, generation_id, self.world.now_ms)

    def _listen(self) -> None:
        group = self.world.group
        assert group.generation_id >= self.generation_id, "generations never fall"
        self.generation_id = group.generation_id
        for token in [each for each in self.asked if each in self.world.answers]:
            instance_id = self.asked.pop(token)
            answer = self.world.answers[token]
            if isinstance(answer, JoinAnswer):
                if answer.error_code == errors_pb2.MEMBER_ID_REQUIRED:
                    self.known[answer.member_id] = (0, None)
                elif not answer.error_code:
                    self.known[answer.member_id] = (answer.generation_id, instance_id)
            elif not answer.error_code:
                self._check_assignment(*self.syncs[token], answer.assignment)

    def _check_assignment(self, generation_id: int, member_id: str, assignment: bytes) -> None:
        told = self.assigned.setdefault((generation_id, member_id), assignment)
        assert told == assignment, "one assignment per member and generation"
        nonces = {
            given[-4:]
            for (generation, _), given in self.assigned.items()
            if generation == generation_id and given
        }
        assert len(nonces) <= 1, "one assignment per generation, by one leader"


@pytest.mark.parametrize("seed", range(60))
def test_any_order_of_events_keeps_the_rules(seed: int) -> None:
    consumers = RandomConsumers(seed)
    for _ in range(STEPS):
        consumers.step()
    consumers.settle()
    assert not consumers.asked, f"seed {seed}: every request is answered in the end"
    assert consumers.world.group.state is GroupState.EMPTY
    assert not consumers.world.unwritten
