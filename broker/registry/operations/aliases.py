"""Aliases: subjects whose configuration says that they stand for another one."""

from dataclasses import replace
from typing import Final

from quorate.broker.registry.operations.calls import RegistryCall
from quorate.broker.registry.state.registry_state import RegistryState
from quorate.broker.registry.subjects import qualified, relative_to

_OF_SUBJECT: Final = "/subjects/{subject}"
_BY_ID: Final = "/schemas/ids/"
_SUBJECT: Final = "subject"


def without_aliases(state: RegistryState, path: str, call: RegistryCall) -> RegistryCall:
    """Return the call with the subject that is meant, where the path names an alias.

    Configurations and modes are those of the alias itself. An alias of an alias is not followed.

    Args:
        state: has the configurations of subjects.
        path: the pattern of the path, as the table of requests has it.
        call: the request.
    """
    if _OF_SUBJECT in path:
        meant = _meant(state, call.parameters[_SUBJECT])
        return replace(call, parameters={**call.parameters, _SUBJECT: meant})
    if path.startswith(_BY_ID) and (named := call.option(_SUBJECT)):
        others = [(key, value) for key, value in call.query if key != _SUBJECT]
        return replace(call, query=[*others, (_SUBJECT, _meant(state, named))])
    return call


def _meant(state: RegistryState, subject: str) -> str:
    alias = (state.config(qualified(subject)) or {}).get("alias")
    return relative_to(subject, alias) if isinstance(alias, str) and alias else subject
