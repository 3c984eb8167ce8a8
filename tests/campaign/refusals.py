"""Whether a message says what a person needs: which file, and what to do."""

import re
from pathlib import Path

from tests.campaign.outcome import Outcome, Verdict

_ADVICE = re.compile(
    r"\b(restore|bring|empty|replace|move|start|repair|correct|make|use another|set aside|free)\b",
    re.IGNORECASE,
)


def refusal(folder: Path, message: str) -> Verdict:
    """Return the verdict about a process that refuses to start with this message."""
    named = str(folder) in message or str(folder.resolve()) in message
    if named and _ADVICE.search(message):
        return Verdict(Outcome.REFUSED, (message,))
    return Verdict(Outcome.UNNAMED, (message,))
