"""Names of subjects: ``orders-value``, or ``:.test:orders-value`` in the context ``.test``.

A context is a registry within the registry, with ids of its own.
"""

from typing import Final, NamedTuple

DEFAULT_CONTEXT: Final = "."
ALL_CONTEXTS: Final = ":*:"
SUBJECT_LENGTH_MAX: Final = 1_024
_SUFFIXES: Final = ("-key", "-value")


class Subject(NamedTuple):
    """A subject: its context, which begins with a dot, and its name in there."""

    context: str
    name: str

    @classmethod
    def parse(cls, text: str) -> "Subject":
        """Parse a qualified name. The name may be empty: then the text names a context."""
        if not text.startswith(":."):
            return cls(DEFAULT_CONTEXT, text)
        context, _, name = text[1:].partition(":")
        return cls(context, name)

    def __str__(self) -> str:
        return f"{self.context_prefix}{self.name}"

    @property
    def context_prefix(self) -> str:
        """Return what the qualified names of all subjects of the context begin with."""
        return "" if self.context == DEFAULT_CONTEXT else f":{self.context}:"

    @property
    def topic(self) -> str:
        """Return the topic whose access control entries hold for the subject.

        That is the topic that the subject is named after (``TopicNameStrategy``), or else a topic
        with the name of the subject.
        """
        for suffix in _SUFFIXES:
            if self.name.endswith(suffix) and self.name != suffix:
                return self.name.removesuffix(suffix)
        return self.name

    @property
    def is_valid(self) -> bool:
        return bool(self.name) and len(str(self)) <= SUBJECT_LENGTH_MAX and str(self).isprintable()


def qualified(text: str) -> str:
    """Return the one way to write a subject: without the default context."""
    return str(Subject.parse(text))


def relative_to(parent: str, text: str) -> str:
    """Return the subject that a reference names. Without a context it is in the context of the
    subject that refers to it."""
    if text.startswith(":."):
        return qualified(text)
    return f"{Subject.parse(parent).context_prefix}{text}"
