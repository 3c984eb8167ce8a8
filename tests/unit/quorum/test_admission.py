"""Who takes part: fresh, wiped, new and removed voters, and who is told what."""

from collections.abc import Mapping

import msgspec
import pytest

from quorate.metadata_log.image import VoterSet
from quorate.metadata_log.records import QuorumVoter
from quorate.quorum.raft.admission import REFUSAL_GRACE_S, Admission
from quorate.quorum.raft.leaving import RemovedFromQuorum, VoterWiped
from quorate_proto.v1.raft_pb2 import RAFT_REFUSAL_NOT_A_VOTER, RAFT_REFUSAL_WIPED, RaftRefusal
from tests.support.metadata import quorum_voter

ONE, TWO, THREE, FOUR = map(quorum_voter, (1, 2, 3, 4))
CONFIGURED = [msgspec.structs.replace(voter, directory_id=b"") for voter in (ONE, TWO, THREE)]
UNSEEN = msgspec.structs.replace(quorum_voter(4, observer=True), directory_id=b"")
WATCHING = quorum_voter(4, observer=True)


class Somebody:
    """A voter that tells others about itself; ``fresh`` may be changed."""

    def __init__(
        self, own: QuorumVoter, *voters: QuorumVoter, version: int = 0, fresh: bool = False
    ) -> None:
        self.fresh = fresh
        configured = CONFIGURED
        if own.voter_id > len(CONFIGURED):
            configured = [*CONFIGURED, msgspec.structs.replace(own, directory_id=b"")]
        self.admission = Admission(own, configured, lambda: self.fresh)
        if voters:
            self.admission.follow(VoterSet(voters, version))

    def meets(self, other: "Somebody") -> RaftRefusal | None:
        """The other one's hello comes here; why it is refused, if it is."""
        hello = other.admission.hello_to(self.admission.own.voter_id)
        refusal = self.admission.judge(hello)
        if refusal is None:
            self.admission.heard(hello)
        return refusal


def fresh(own: QuorumVoter) -> Somebody:
    return Somebody(own, fresh=True)


def takes_part(one: Somebody) -> bool:
    return one.admission.takes_part


def established(own: QuorumVoter, *others: QuorumVoter, version: int = 5) -> Somebody:
    return Somebody(own, own, *others, version=version)


# --- the first start ----------------------------------------------------------------------------


def test_the_first_start_needs_every_configured_voter() -> None:
    one, two, three = fresh(ONE), fresh(TWO), fresh(THREE)
    assert one.admission.waits_for() == CONFIGURED[1:]
    one.meets(two)
    assert takes_part(one) is False
    assert one.admission.waits_for() == [CONFIGURED[2]]
    one.meets(three)
    assert takes_part(one) is True
    assert one.admission.waits_for() == []


def test_the_first_voter_set_has_the_folders_of_all() -> None:
    one = Somebody(ONE)
    assert one.admission.takes_part  # It has voted before.
    one.meets(fresh(TWO))
    assert one.admission.first_voter_set() is None
    assert one.admission.waits_for() == [CONFIGURED[2]]
    one.meets(fresh(THREE))
    assert one.admission.first_voter_set() == (ONE, TWO, THREE)


def test_voters_that_are_configured_with_others_begin_nothing() -> None:
    """Else one and two begin a quorum, and three begins another with whoever is left."""
    one, two = fresh(ONE), fresh(TWO)
    few = Admission(TWO, CONFIGURED[:2], lambda: True)
    few.heard(one.admission.hello_to(TWO.voter_id))
    assert not few.takes_part
    assert few.waits_for() == CONFIGURED[:1]
    assert few.disagreement(1) == (
        "its quorum.voters are 1, 2, 3, here they are 1, 2: make them the same"
    )
    one.meets(fresh(THREE))
    one.admission.heard(few.hello_to(ONE.voter_id))
    assert not takes_part(one)
    one.meets(two)  # Its configuration is corrected.
    assert one.admission.disagreement(2) == ""
    assert takes_part(one)


def test_a_lone_voter_waits_for_nobody() -> None:
    admission = Admission(ONE, CONFIGURED[:1], lambda: True)
    assert admission.takes_part
    assert admission.first_voter_set() == (ONE,)


def test_a_voter_with_data_needs_nobody() -> None:
    assert Somebody(ONE).admission.takes_part


def test_a_wiped_voter_does_not_begin_with_one_that_was_not_wiped() -> None:
    one, voted = fresh(ONE), Somebody(TWO)
    one.meets(voted)
    one.meets(fresh(THREE))
    assert not one.admission.takes_part
    assert one.admission.waits_for() == [CONFIGURED[1]]


def test_who_saw_all_fresh_vouches_for_one_that_lost_power_before_its_first_vote() -> None:
    remembered: list[Mapping[int, bytes]] = []
    three = Admission(THREE, CONFIGURED, lambda: True, {}, remembered.append)
    for other in (fresh(ONE), fresh(TWO)):
        assert remembered == []
        three.heard(other.admission.hello_to(THREE.voter_id))
    folders = {int(voter.voter_id): voter.directory_id for voter in (ONE, TWO, THREE)}
    assert remembered == [folders]

    voted = Admission(THREE, CONFIGURED, lambda: False, folders)  # Restarted since.
    again, wiped = fresh(ONE), fresh(quorum_voter(1, folder=7))
    for one in (again, wiped):
        one.admission.heard(voted.hello_to(ONE.voter_id))
        one.meets(fresh(TWO))
    assert again.admission.takes_part
    assert again.admission.has_vote
    assert not wiped.admission.takes_part
    refusal = voted.judge(wiped.admission.hello_to(THREE.voter_id))
    assert refusal is not None
    assert "empty their data folders" in refusal.detail
    assert wiped.admission.refused(refusal, now_s=10)
    with pytest.raises(VoterWiped):
        wiped.admission.check(10 + REFUSAL_GRACE_S)


def test_who_did_not_see_all_fresh_vouches_for_nobody() -> None:
    one, voted = fresh(ONE), Somebody(THREE)
    one.meets(voted)
    assert not one.admission.takes_part


def test_who_is_to_join_a_quorum_does_not_help_to_begin_another() -> None:
    """Else voters with empty disks, whose configured ones have all moved on, elect a leader."""
    joining, other = fresh(ONE), fresh(TWO)
    joining.meets(established(FOUR, ONE))
    assert takes_part(joining) is True
    three = fresh(THREE)
    three.meets(other)
    three.meets(joining)
    assert takes_part(three) is False
    assert three.admission.waits_for() == [CONFIGURED[0]]


def test_who_joins_has_no_vote_after_a_restart_either() -> None:
    """Else several that joined and restarted, with empty logs, elect one of themselves."""
    remembered: dict[int, bytes] = {}
    joining = Admission(ONE, CONFIGURED, lambda: True, {}, remembered.update)
    joining.heard(established(FOUR, ONE).admission.hello_to(ONE.voter_id))
    assert joining.has_vote is False
    again = Admission(ONE, CONFIGURED, lambda: False, remembered)
    assert again.takes_part is True
    assert again.has_vote is False
    again.follow(VoterSet((FOUR, ONE), 5))
    assert again.has_vote is True


def test_who_was_refused_by_a_quorum_does_not_help_to_begin_another() -> None:
    refused, other, three = fresh(ONE), fresh(TWO), fresh(THREE)
    refusal = established(FOUR).meets(refused)
    assert refusal is not None
    refused.admission.refused(refusal, 0.0)
    three.meets(other)
    three.meets(refused)
    assert takes_part(three) is False
    refused.meets(other)
    refused.meets(fresh(THREE))
    assert takes_part(refused) is False


# --- a fresh voter and a quorum that exists -----------------------------------------------------


def test_a_voter_that_slept_through_the_start_is_expected() -> None:
    three, one = fresh(THREE), established(ONE, TWO, THREE)
    assert three.meets(one) is None
    assert three.admission.takes_part
    assert one.meets(three) is None


def test_a_wiped_voter_is_refused_and_takes_no_part() -> None:
    wiped, one = fresh(quorum_voter(3, folder=7)), established(ONE, TWO, THREE)
    assert wiped.meets(one) is None
    assert not wiped.admission.takes_part
    refusal = one.meets(wiped)
    assert refusal is not None
    assert refusal.reason == RAFT_REFUSAL_WIPED
    for word in ("voter 3 at voter3:7001", "666f6c64…", "wiped", "remove-voter 3"):
        assert word in refusal.detail
    assert wiped.admission.refused(refusal, now_s=10)
    wiped.admission.check(10 + REFUSAL_GRACE_S / 2)
    with pytest.raises(VoterWiped, match="wiped or replaced"):
        wiped.admission.check(10 + REFUSAL_GRACE_S)


def test_who_is_behind_hears_a_voter_that_was_replaced_meanwhile_and_does_not_count_it() -> None:
    replaced = established(quorum_voter(3, folder=7), ONE, TWO, version=9)
    behind = established(ONE, TWO, THREE, version=5)
    assert behind.meets(replaced) is None
    assert not behind.admission.counts(3)
    behind.admission.follow(replaced.admission.voter_set)
    assert behind.admission.counts(3)


def test_a_voter_with_data_of_another_folder_is_refused_too() -> None:
    other = established(quorum_voter(3, folder=7), ONE, TWO, version=5)
    refusal = established(ONE, TWO, THREE).meets(other)
    assert refusal is not None
    assert refusal.reason == RAFT_REFUSAL_WIPED


def test_a_stranger_waits_to_be_added() -> None:
    new, one = fresh(FOUR), established(ONE, TWO, THREE)
    refusal = one.meets(new)
    assert refusal is not None
    assert refusal.reason == RAFT_REFUSAL_NOT_A_VOTER
    assert new.admission.refused(refusal, now_s=10)
    new.admission.check(100)
    new.meets(one)
    assert not new.admission.takes_part
    assert new.admission.how_to_add() == "quorate quorum add-voter 4@voter4:7001/7101"


@pytest.mark.parametrize("member", [UNSEEN, WATCHING])
def test_a_stranger_takes_part_once_it_is_added(member: QuorumVoter) -> None:
    new, one = fresh(FOUR), established(ONE, TWO, THREE, member)
    assert one.meets(new) is None
    assert new.meets(one) is None
    assert new.admission.takes_part
    assert new.admission.waits_for() == []


def test_a_new_voter_has_no_vote_before_its_own_set_says_so() -> None:
    new = fresh(FOUR)
    new.meets(established(ONE, TWO, THREE, UNSEEN))
    assert not new.admission.has_vote
    for voters, has_vote in (
        ((ONE, TWO, THREE), False),
        ((ONE, TWO, THREE, WATCHING), False),
        ((ONE, TWO, THREE, FOUR), True),
    ):
        new.admission.follow(VoterSet(voters, new.admission.voter_set.version + 1))
        assert new.admission.has_vote is has_vote


def test_a_set_that_names_another_folder_gives_no_vote() -> None:
    again = fresh(quorum_voter(3, folder=7))
    added = msgspec.structs.replace(THREE, directory_id=b"", observer=True)
    again.meets(established(ONE, TWO, added, version=9))
    for version, voters in enumerate([(THREE,), (ONE, THREE), (ONE, TWO)], 1):
        again.admission.follow(VoterSet(voters, version))  # The one that it replaces, and its end.
        assert not again.admission.has_vote
    again.admission.follow(VoterSet((ONE, TWO, quorum_voter(3, folder=7)), 10))
    assert again.admission.has_vote


# --- voters that are behind ---------------------------------------------------------------------


def test_who_is_behind_hears_a_stranger_with_a_newer_set() -> None:
    behind = established(ONE, TWO, THREE, version=5)
    ahead = established(FOUR, ONE, TWO, THREE, version=8)
    assert behind.meets(ahead) is None
    assert ahead.meets(behind) is None


def test_a_refusal_by_who_is_behind_is_of_no_account() -> None:
    behind = established(ONE, TWO, THREE, version=5)
    again = fresh(quorum_voter(3, folder=7))
    ahead = established(TWO, ONE, quorum_voter(3, folder=7), version=8)
    refusal = behind.meets(again)
    assert refusal is not None
    assert again.admission.refused(refusal, now_s=10)
    again.meets(ahead)
    again.admission.check(100)
    assert not again.admission.refused(refusal, now_s=100)


# --- removal ------------------------------------------------------------------------------------


def test_applying_its_own_removal_ends_a_voter() -> None:
    three = established(THREE, ONE, TWO)
    with pytest.raises(RemovedFromQuorum, match="add-voter 3@voter3:7001/7101"):
        three.admission.follow(VoterSet((ONE, TWO), 6))


def test_who_was_added_again_meanwhile_goes_on() -> None:
    three, ahead = established(THREE, ONE, TWO, version=5), established(ONE, TWO, THREE, version=8)
    three.meets(ahead)
    three.admission.follow(VoterSet((ONE, TWO), 6))
    assert not three.admission.has_vote
    three.admission.follow(VoterSet((ONE, TWO, THREE), 8))
    assert three.admission.has_vote


def test_a_new_voter_reads_sets_from_before_its_time() -> None:
    new = fresh(FOUR)
    new.admission.follow(VoterSet((ONE, TWO), 3))
    new.admission.follow(VoterSet((ONE, TWO, THREE), 4))


def test_a_voter_that_missed_its_removal_is_told() -> None:
    three, one = established(THREE, ONE, TWO, version=5), established(ONE, TWO, version=6)
    refusal = one.meets(three)
    assert refusal is not None
    assert refusal.reason == RAFT_REFUSAL_NOT_A_VOTER
    assert three.admission.refused(refusal, now_s=10)
    with pytest.raises(RemovedFromQuorum, match="voter set 6"):
        three.admission.check(10 + REFUSAL_GRACE_S)


def test_a_voter_that_even_missed_the_first_set_is_told() -> None:
    three = Somebody(THREE)  # It has voted; that a set was committed it never heard.
    refusal = established(ONE, TWO, version=6).meets(three)
    assert refusal is not None
    assert three.admission.refused(refusal, now_s=10)
    with pytest.raises(RemovedFromQuorum, match="voter set 6"):
        three.admission.check(10 + REFUSAL_GRACE_S)


def test_a_voter_is_not_removed_by_one_with_an_older_set() -> None:
    four, one = established(FOUR, ONE, TWO, version=8), established(ONE, TWO, version=6)
    late = RaftRefusal(reason=RAFT_REFUSAL_NOT_A_VOTER, voter_set_version=6)
    assert one.meets(four) is None
    assert not four.admission.refused(late, now_s=10)
    four.admission.check(100)
