"""The person at the console."""

from typing import NamedTuple

from quorate.broker.security.principal import KafkaPrincipal, parse_principal
from quorate_proto.v1.console_pb2 import ConsolePerson


class Person(NamedTuple):
    """A person whom the console's listener has authenticated, and the address of their browser."""

    principal: KafkaPrincipal
    client_host: str


def encode_person(person: Person) -> ConsolePerson:
    """Return the message that says to another broker on whose behalf it is asked."""
    return ConsolePerson(
        principal=str(person.principal),
        token_authenticated=person.principal.token_authenticated,
        client_host=person.client_host,
    )


def decode_person(message: ConsolePerson) -> Person:
    """Return the person on whose behalf another broker asks."""
    named = parse_principal(message.principal)
    principal = named._replace(token_authenticated=message.token_authenticated)
    return Person(principal, message.client_host)
