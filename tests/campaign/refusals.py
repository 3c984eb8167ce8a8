"""Whether a message says what a person needs: which file, and what to do."""

import re
from pathlib import Path

from tests.campaign.outcome import Outcome, Verdict

_ADVICE = re.compile(
    r"\b(restore|bring|empty|replace|move|start|repair|correct|make|use another|set aside|free)\b",
    re.IGNORECASE,
)
_OF_VOTER = "the data folder of voter "


def refusal(folder: Path, message: str) -> Verdict:
    """Return the verdict about a process that refuses to start with this message."""
    named = any(name in message for name in (str(folder), str(folder.resolve()), _OF_VOTER))
    if named and _ADVICE.search(message):
        return Verdict(Outcome.REFUSED, (message,))
    return Verdict(Outcome.UNNAMED, (message,))
