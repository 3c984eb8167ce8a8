"""Guards of the product, each with a way to take it out of a running interpreter.

A mutant names a function and a piece of its source. The function is compiled again with another
piece in its place, and its code object is exchanged: whoever has imported the function runs the
mutant. The product has no switch for it.
"""

import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import NamedTuple


class CodeMutant(NamedTuple):
    """One guard less."""

    name: str
    function: str
    """``module:Class.method`` or ``module:function``."""
    old: str
    """A piece of its source that occurs once."""
    new: str
    caught_by: str
    """The test that must fail without the guard."""


class NoSuchGuard(LookupError):
    """The source is not what the mutant takes it for."""


@contextmanager
def without_guard(mutant: CodeMutant) -> Iterator[None]:
    """While this lasts, the guard is gone.

    Raises:
        NoSuchGuard: the function, or the piece of its source, is not there exactly once.
    """
    function = _function(mutant)
    kept = function.__code__
    function.__code__ = _changed(mutant, function)
    try:
        yield
    finally:
        function.__code__ = kept


def _function(mutant: CodeMutant) -> FunctionType:
    module, _, path = mutant.function.partition(":")
    found: object = importlib.import_module(module)
    for name in path.split("."):
        try:
            found = inspect.getattr_static(found, name)
        except AttributeError as error:
            raise NoSuchGuard(f"{mutant.name}: there is no {mutant.function}") from error
        if isinstance(found, property) and found.fget is not None:
            found = found.fget
        found = getattr(found, "__func__", found)
    found = inspect.unwrap(found)  # type: ignore[arg-type]  # not a function: said below
    if not isinstance(found, FunctionType):
        raise NoSuchGuard(f"{mutant.name}: {mutant.function} is no function")
    return found


def _changed(mutant: CodeMutant, function: FunctionType) -> CodeType:
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(mutant.old) != 1:
        raise NoSuchGuard(f"{mutant.name}: {mutant.old!r} is not there exactly once")
    compiled = _compile(source.replace(mutant.old, mutant.new), function)
    if compiled.co_freevars != function.__code__.co_freevars:
        raise NoSuchGuard(f"{mutant.name}: the changed function uses other outer names")
    return compiled


def _compile(source: str, function: FunctionType) -> CodeType:
    """The code object of the only function of ``source``, among the outer names of ``function``."""
    outer = function.__code__.co_freevars
    body = textwrap.indent(source, "    " if outer else "")
    if outer:
        names = ", ".join(outer)
        body = f"def _outer({names}):\n{body}\n    return {function.__name__}\n"
    whole = compile(body, function.__code__.co_filename, "exec", dont_inherit=True)
    return _named(whole, function.__name__)


def _named(code: CodeType, name: str) -> CodeType:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_name == name:
                return constant
            found = [one for one in constant.co_consts if isinstance(one, CodeType)]
            for one in found:
                if one.co_name == name:
                    return one
    raise NoSuchGuard(f"no function {name} in its own source")
