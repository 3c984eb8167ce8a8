"""Kills and pauses of voters in an order that a seed decides; afterwards all of them run again."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Final

from tests.support.quorum_cluster import QuorumCluster
from tests.support.waiting import async_let_time_pass, async_wait_until

PROGRESS_TIMEOUT_S: Final = 30.0
PAUSE_LONGEST_S: Final = 2.5
"""Much longer than an election timeout: a paused leader wakes up deposed."""


class QuorumChaos:
    """One fault after the other. ``progress``: how many transactions are acknowledged so far."""

    def __init__(self, quorum: QuorumCluster, seed: int, progress: Callable[[], int]) -> None:
        self._quorum = quorum
        self._random = random.Random(seed)
        self._progress = progress
        self._started_s = time.monotonic()
        self.notes: list[str] = []
        self.kills = 0
        """Faults that kill: one, two or all three voters at once."""
        self.killed = 0
        """Processes killed."""
        self.pauses = 0

    async def run(self, faults: int) -> None:
        """Raises AssertionError if the quorum does not come back after one of them."""
        actions = (
            self._kill_one,
            self._kill_one,
            self._kill_leader,
            self._kill_leader,
            self._kill_two,
            self._kill_all,
            self._kill_all,
            self._pause,
            self._pause_leader,
            self._pause_two,
            self._kill_beside_a_pause,
        )
        for _ in range(faults):
            await self._random.choice(actions)()
            if self._random.random() < 0.7:
                await self._goes_on()
            else:
                await async_let_time_pass(
                    self._random.uniform(0.0, 0.5), "faults come at any moment"
                )
        await self._goes_on()

    # -- faults ----------------------------------------------------------------------------------

    async def _kill_one(self) -> None:
        await self._kill([self._random.choice(self._quorum.voter_ids)])

    async def _kill_leader(self) -> None:
        await self._kill([await self._leader()])

    async def _kill_two(self) -> None:
        await self._kill(self._random.sample(self._quorum.voter_ids, 2))

    async def _kill_all(self) -> None:
        await self._kill(self._random.sample(self._quorum.voter_ids, 3))

    async def _pause(self) -> None:
        await self._pause_for([self._random.choice(self._quorum.voter_ids)])

    async def _pause_leader(self) -> None:
        await self._pause_for([await self._leader()])

    async def _pause_two(self) -> None:
        await self._pause_for(self._random.sample(self._quorum.voter_ids, 2))

    async def _kill_beside_a_pause(self) -> None:
        """Pause one voter and kill another, which must not forget what only two of three have
        now."""
        paused, killed = self._random.sample(self._quorum.voter_ids, 2)
        self._note(f"pause {paused}")
        self.pauses += 1
        self._quorum.pause(paused)
        await async_let_time_pass(self._random.uniform(0.1, 1.0), "the others go on without it")
        await self._kill([killed])
        self._quorum.resume(paused)

    # -- how -------------------------------------------------------------------------------------

    async def _kill(self, victims: Sequence[int]) -> None:
        self._note(f"kill {', '.join(map(str, victims))}")
        self.kills += 1
        self.killed += len(victims)
        for voter_id in victims:
            self._quorum.kill(voter_id)
            apart_s = self._random.choice((0.0, 0.0, 0.05))
            await async_let_time_pass(apart_s, "some die together, others one by one")
        away_s = self._random.choice((0.0, 0.1, self._random.uniform(0.0, 1.5)))
        await async_let_time_pass(away_s, "some are back before others notice")
        for voter_id in victims:
            self._quorum.start(voter_id)

    async def _pause_for(self, victims: Sequence[int]) -> None:
        pause_s = self._random.uniform(0.05, PAUSE_LONGEST_S)
        self._note(f"pause {', '.join(map(str, victims))} for {pause_s:.2f} s")
        self.pauses += len(victims)
        for voter_id in victims:
            self._quorum.pause(voter_id)
        await async_let_time_pass(pause_s, "some pauses outlast a term, others do not")
        for voter_id in victims:
            self._quorum.resume(voter_id)

    async def _leader(self) -> int:
        """The leader now, or anybody where there is none yet."""
        leader = await asyncio.to_thread(self._quorum.leader)
        return leader or self._random.choice(self._quorum.voter_ids)

    async def _goes_on(self) -> None:
        """Something new is acknowledged: nobody stays stuck, whatever the fault was."""
        wanted = self._progress() + self._random.randint(1, 60)

        def has_gone_on() -> bool:
            self._quorum.check_running()
            return self._progress() >= wanted

        await async_wait_until(has_gone_on, "acknowledgements", timeout_s=PROGRESS_TIMEOUT_S)

    def _note(self, what: str) -> None:
        self.notes.append(f"{time.monotonic() - self._started_s:.2f} s: {what}")
