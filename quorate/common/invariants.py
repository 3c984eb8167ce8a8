"""The error of a broken invariant, and the check that raises it.

Assertions stand where invariants live and stay on in production. They are explicit checks, because
``python -O`` removes assert statements. Whoever owns the state stops: a replica leaves its ISRs and
serves nobody, a process that cannot single out a replica ends. Neither goes on from a state that
must not exist.
"""


class BrokenInvariant(Exception):
    """Something is in a state that its rules exclude; the message names it, its values and the
    rule.
    """

    def __init__(self, where: str, invariant: str, **values: object) -> None:
        """``where`` names what is broken, ``invariant`` says what must hold and cites the rule."""
        found = ", ".join(f"{name} is {value}" for name, value in values.items())
        super().__init__(f"{where}: broken invariant: {invariant}; {found}")
        self.where = where
        self.invariant = invariant


def require(holds: bool, where: str, invariant: str, **values: object) -> None:
    """Raise ``BrokenInvariant`` unless the invariant holds.

    Hot paths compare first and raise the error themselves, which saves the call.
    """
    if not holds:
        raise BrokenInvariant(where, invariant, **values)
