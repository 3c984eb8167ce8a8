"""The errors of schemas that cannot be used."""


class InvalidSchema(Exception):
    """A schema cannot be parsed. The message says what is wrong with it."""


class SchemaTooComplex(InvalidSchema):
    """A comparison of schemas took more steps than anybody's schemas need."""
