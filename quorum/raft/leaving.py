"""The errors with which a voter leaves the quorum. Each ends its process and says what to do."""


class LeavesQuorum(Exception):
    """This voter must not go on; the message says why and what to do."""


class RemovedFromQuorum(LeavesQuorum):
    """A committed change removed this voter."""


class VoterWiped(LeavesQuorum):
    """The voter's data folder is not the one that the quorum knows."""


class VoterStale(LeavesQuorum):
    """The voter's data folder lacks what the voter has promised to others."""
