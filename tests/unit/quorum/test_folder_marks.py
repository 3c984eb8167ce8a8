"""The marks of brokers' log folders: heard with keep-alives, noted together and seldom (rule 8)."""

from quorate.metadata_log import records as r
from quorate.metadata_log.records import QuorumVoterSet
from quorate.quorum.voter.folder_marks import NOTE_EVERY_MS, FolderMarks
from tests.support.metadata import MetadataLogBuilder, quorum_voter, session_of


def begun(version: int = 5) -> MetadataLogBuilder:
    log = MetadataLogBuilder(begun=False)
    voters = (quorum_voter(1),)
    log.write(QuorumVoterSet(expected_version=0, voters=voters, metadata_version=version))
    for broker_id in (1, 2):
        log.start_broker(broker_id)
    return log


def test_marks_are_noted_together_and_only_when_they_have_grown() -> None:
    log, marks = begun(), FolderMarks()
    marks.hear(session_of(1), 3)
    marks.hear(session_of(2), 5)
    due = marks.due(log.image, 0)
    assert {one.session_id: one.mark for one in due} == {session_of(1): 3, session_of(2): 5}
    log.write(r.FolderMarks(marks=due))
    assert marks.due(log.image, NOTE_EVERY_MS) == (), "an idle cluster writes nothing"
    marks.hear(session_of(2), 6)
    assert marks.due(log.image, NOTE_EVERY_MS + 1) == (), "it is not time to look"
    (one,) = marks.due(log.image, 2 * NOTE_EVERY_MS)
    assert (one.session_id, one.mark) == (session_of(2), 6)


def test_the_mark_of_an_earlier_incarnation_says_nothing_of_the_next() -> None:
    log, marks = begun(), FolderMarks()
    marks.hear(session_of(1), 30)
    log.write(r.FolderMarks(marks=marks.due(log.image, 0)))
    log.stop_broker(1)
    log.start_broker(1, incarnation=1)
    assert marks.due(log.image, NOTE_EVERY_MS) == ()
    marks.hear(session_of(1, 1), 4)
    (one,) = marks.due(log.image, 2 * NOTE_EVERY_MS)
    assert one.mark == 4


def test_an_older_quorum_is_not_written_what_it_cannot_read() -> None:
    log, marks = begun(version=4), FolderMarks()
    marks.hear(session_of(1), 3)
    assert marks.due(log.image, 0) == ()
