"""The cluster level: kill -9 of all brokers or voters, damage to one folder, and the next start.

The damaged node starts alone first, last, or among the others. In the end everything that was
acknowledged is there, on replicas that are equal byte for byte. A node that refuses gets what its
message advises: an empty folder, or for a voter its old one.
"""

import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from quorate.client.admin import AdminClient
from quorate.client.errors import QuorateError
from quorate.cluster.client_options import client_options_of
from quorate.cluster.local_cluster_errors import LocalClusterError
from quorate.testing import RunningCluster
from tests.campaign.cluster.promises import BrokenPromise, Promises
from tests.campaign.cluster.replica_differences import Compare
from tests.campaign.damage import Damage, carry_out, choose
from tests.campaign.outcome import Case, Outcome, Verdict
from tests.campaign.refusals import refusal
from tests.support.waiting import let_time_pass, wait_until
from tests.support.whole_cluster import describe, wait_until_whole

FIRST, LAST, AMONG = "alone first", "last", "among the others"
BROKER, VOTER = "broker", "voter"
CONFIG = {
    "log.segment.bytes": 1 << 20,
    "log.reserve.bytes": 1 << 20,
    "security.protocol": "PLAINTEXT",
    "metadata.log.max.records.between.snapshots": 60,
    "metadata.log.retained.records": 20,
}
_RECORDS = 200
_FIRST_RECORDS = 6_000
_ALONE_S = 1.5
"""The time that the damaged node has alone: the others' sessions end, and it is elected."""
_ANSWER_S = 30.0
_COPIES = 3
_COPIED_EVERY = 5
_NOTICED = ("may be lost", "damage", "set aside", "is missing", "has a gap", "lost here")


class Refused(Exception):
    """The damaged node ended; the verdict says how."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict


class ClusterCampaign:
    """Cases on one running cluster, until one of them is a finding."""

    def __init__(
        self,
        compare: Compare,
        cluster: RunningCluster,
        seed: int,
        work: Path,
        damages: Sequence[str],
    ) -> None:
        """``compare`` compares replicas, and ``damages`` are the kinds of damage to choose from."""
        self._compare, self._cluster, self._seed, self._work = compare, cluster, seed, work
        self._damages = damages
        self._promises = Promises(cluster, random.Random(seed))
        self._copies: dict[Path, list[Path]] = {}
        self._said_before = 0
        self._epochs_before: dict[int, int] = {}
        """The registrations before the last kill: a killed broker's outlives it for a moment."""
        self._promises.produce(_FIRST_RECORDS)

    def run(self, numbers: Sequence[int], kinds: Sequence[str]) -> Iterator[Case]:
        """Yield cases; the last one of them may be a finding."""
        self._copy_first()
        for number in numbers:
            case = self._run_one(number, kinds)
            yield case
            if case.is_finding:
                return

    def _run_one(self, number: int, kinds: Sequence[str]) -> Case:
        chance = random.Random(f"{self._seed} cluster {number}")
        kind = chance.choice(kinds)
        order = chance.choice([FIRST, LAST, AMONG])
        victim = chance.choice(self._ids(kind))
        damage, notes = Damage("none", "none"), []
        try:
            self._promises.change_metadata()
            self._promises.produce(_RECORDS)
            self._kill_all(kind)
            notes = self._differences() if kind == BROKER else []
            folder = self._folder(kind, victim)
            if number % _COPIED_EVERY == 0:
                self._copy_all(kind, number)
            damage = choose(chance, folder, self._copies[folder], self._damages)
            self._keep_whole(folder)
            carry_out(damage, folder, self._copies[folder])
            verdict = self._start(kind, victim, order)
            self._promises.produce(_RECORDS // 10)
            self._promises.check()
        except BrokenPromise as broken:
            verdict = Verdict(Outcome.LOSS, (str(broken), describe(self._cluster)))
        except (AssertionError, LocalClusterError, QuorateError) as error:
            verdict = Verdict(Outcome.HANG, (str(error), describe(self._cluster)))
        if notes:
            verdict = Verdict(Outcome.DIFFERENT, ("before this case", *notes))
        return Case(
            number=number,
            node=kind,
            file=damage.file if not damage.file.startswith("segment-") else "segment-N.mdb",
            kind=damage.kind,
            what=f"{damage} in {kind} {victim}",
            order=order,
            verdict=verdict,
        )

    # -- folders ---------------------------------------------------------------------------------

    def _ids(self, kind: str) -> list[int]:
        return self._cluster.broker_ids if kind == BROKER else self._cluster.voter_ids

    def _folder(self, kind: str, node_id: int) -> Path:
        return self._cluster.folder / f"{'broker' if kind == BROKER else 'quorum'}-{node_id}"

    def _copy_all(self, kind: str, number: int) -> None:
        """Take copies of the folders of killed nodes, for later cases."""
        for node_id in self._ids(kind):
            folder = self._folder(kind, node_id)
            copies = self._copies.setdefault(folder, [])
            copies.append(self._work / f"{folder.name}-copy-{number}")
            shutil.copytree(folder, copies[-1], dirs_exist_ok=True)
            if len(copies) > _COPIES:
                shutil.rmtree(copies.pop(0))

    def _copy_first(self) -> None:
        for kind in (BROKER, VOTER):
            self._kill_all(kind)
            self._copy_all(kind, -1)
            self._start_nodes(kind, self._ids(kind))

    def _keep_whole(self, folder: Path) -> None:
        """Keep the undamaged folder, so that a voter can get it back."""
        shutil.rmtree(self._work / "whole", ignore_errors=True)
        shutil.copytree(folder, self._work / "whole")

    def _differences(self) -> list[str]:
        """Compare the replicas of the killed brokers.

        Damage that nobody has read yet is repaired, so that a case has one damaged node.
        """
        brokers = self._cluster.broker_ids
        folders = [self._folder(BROKER, each) for each in brokers]
        ends = self._promises.ends()
        unreadable, differing = self._compare(folders, ends)
        if unreadable:
            for number in unreadable:
                shutil.rmtree(folders[number])
            self._start_nodes(BROKER, brokers)
            self._wait_until_whole()
            self._kill_all(BROKER)
            _, differing = self._compare(folders, ends)
        if differing:
            for folder in folders:
                shutil.copytree(folder, self._cluster.folder / "differing" / folder.name)
        return list(differing)

    # -- processes -------------------------------------------------------------------------------

    def _kill_all(self, kind: str) -> None:
        cluster = self._cluster
        self._wait_until_whole()
        if kind == BROKER:
            self._epochs_before = self._epochs()
            for broker_id in cluster.broker_ids:
                cluster.kill_broker(broker_id)
        else:
            for voter_id in cluster.voter_ids:
                cluster.kill_voter(voter_id)

    def _epochs(self) -> dict[int, int]:
        return {broker.id: broker.epoch for broker in self._cluster.status().brokers}

    def _wait_until_whole(self) -> None:
        """Wait until the cluster is whole, and every broker has registered since the last kill."""

        def have_registered() -> bool:
            epochs = self._epochs()
            before = self._epochs_before
            return all(epochs.get(each, -1) > epoch for each, epoch in before.items())

        wait_until(
            have_registered,
            lambda: f"the brokers to register\n{describe(self._cluster)}",
            timeout_s=_ANSWER_S,
        )
        wait_until_whole(self._cluster)

    def _start(self, kind: str, victim: int, order: str) -> Verdict:
        """Start all nodes; return what became of the damaged one once the cluster is whole."""
        others = [each for each in self._ids(kind) if each != victim]
        self._said_before = len(self._said(kind, victim))
        left = list(others)
        try:
            if order == LAST:
                self._start_nodes(kind, others)
                left = []
                self._promises.produce(_RECORDS // 10)
            self._start_nodes(kind, [victim])
            if order == FIRST:
                self._wait_alone(kind, victim)
            self._start_nodes(kind, left)
            left = []
            self._wait_for(kind, victim)
            if kind == VOTER:
                self._linger(kind, victim)
        except Refused:
            self._start_nodes(kind, left)
        verdict = self._how_it_ended(kind, victim)
        if verdict is not None:
            self._promises.produce(_RECORDS // 10)
            self._follow_advice(kind, victim)
        self._wait_until_whole()
        if verdict is None:
            said = self._said_now(kind, victim)
            noticed = [line for line in said.splitlines() if any(w in line for w in _NOTICED)]
            verdict = Verdict(Outcome.HEALED if noticed else Outcome.SAME, tuple(noticed[:3]))
        return verdict

    def _start_nodes(self, kind: str, ids: Sequence[int]) -> None:
        for node_id in ids:
            if kind == BROKER:
                self._cluster.restart_broker(node_id, wait=False)
            else:
                self._cluster.restart_voter(node_id)

    def _wait_alone(self, kind: str, victim: int) -> None:
        """Give the damaged node the time to do harm."""
        if kind == BROKER:
            self._wait_for(kind, victim)
        self._linger(kind, victim)

    def _linger(self, kind: str, victim: int) -> None:
        """Wait a while.

        Raises:
            Refused: the damaged node has ended.
        """
        deadline = time.monotonic() + _ALONE_S
        while time.monotonic() < deadline:
            self._check_runs(kind, victim)
            let_time_pass(0.05, "the damaged node may end, or do harm")

    def _wait_for(self, kind: str, victim: int) -> None:
        """Wait until the damaged broker has registered, or the damaged voter is ready.

        Raises:
            Refused: it has ended.
        """

        def is_up() -> bool:
            self._check_runs(kind, victim)
            if kind == VOTER:
                return " ready: raft" in self._said_now(kind, victim)
            return self._is_registered(victim)

        wait_until(is_up, f"{kind} {victim} to be up", timeout_s=_ANSWER_S)

    def _is_registered(self, broker_id: int) -> bool:
        with AdminClient(
            grpc_addresses=[self._cluster.broker_grpc_address(broker_id)],
            timeout_ms=1_000,
            options=client_options_of(self._cluster.folder),
        ) as admin:
            return admin.cluster_status().broker(broker_id) is not None

    def _check_runs(self, kind: str, node_id: int) -> None:
        if self._pid(kind, node_id) is None:
            raise Refused(Verdict(Outcome.REFUSED))

    def _pid(self, kind: str, node_id: int) -> int | None:
        asked: Callable[[int], int | None]
        asked = self._cluster.broker_pid if kind == BROKER else self._cluster.voter_pid
        return asked(node_id)

    def _said(self, kind: str, node_id: int) -> str:
        name = f"{'broker' if kind == BROKER else 'quorum'}-{node_id}.log"
        path = self._cluster.folder / "logs" / name
        return path.read_text(errors="replace") if path.exists() else ""

    def _said_now(self, kind: str, node_id: int) -> str:
        """Return what a node has said since its last start."""
        return self._said(kind, node_id)[self._said_before :]

    def _how_it_ended(self, kind: str, victim: int) -> Verdict | None:
        """Return the verdict about a node that has ended, or None if it runs."""
        if self._pid(kind, victim) is not None:
            return None
        said = self._said_now(kind, victim)
        if "Traceback (most recent call last)" in said:
            return Verdict(Outcome.TRACEBACK, (said[-2000:],))
        prefixes = (f"broker {victim}: ", "quorate quorum voter: ")
        lines = [line for line in said.splitlines() if line.startswith(prefixes)]
        if not lines:
            return Verdict(Outcome.SIGNAL, (said[-1000:],))
        return refusal(self._folder(kind, victim), lines[-1])

    def _follow_advice(self, kind: str, victim: int) -> None:
        """Empty the folder of a broker; give a voter its folder back as it was."""
        folder = self._folder(kind, victim)
        shutil.rmtree(folder)
        if kind == VOTER:
            shutil.copytree(self._work / "whole", folder)
        self._start_nodes(kind, [victim])
