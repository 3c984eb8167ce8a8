"""The errors that the registry answers, with the codes of Confluent's registry."""

from collections.abc import Sequence


class RegistryError(Exception):
    """A request is refused: the HTTP status, the code that clients look at, and why."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(404, 40402, f"Version {version} not found.")


def schema_not_found(what: object = "") -> RegistryError:
    return RegistryError(404, 40403, f"Schema {what} not found" if what else "Schema not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(
        404,
        40404,
        f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently",
    )


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(
        404,
        40405,
        f"Subject '{subject}' was not deleted first before being permanently deleted",
    )


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        404,
        40406,
        f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete "
        "permanently",
    )


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        404,
        40407,
        f"Subject '{subject}' Version {version} was not deleted first before being permanently "
        "deleted",
    )


def no_subject_config(subject: str) -> RegistryError:
    return RegistryError(
        404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured"
    )


def no_subject_mode(subject: str) -> RegistryError:
    return RegistryError(
        404, 40409, f"Subject '{subject}' does not have subject-level mode configured"
    )


def incompatible_schema(subject: str, problems: Sequence[str]) -> RegistryError:
    return RegistryError(
        409,
        409,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", '
        f"details: {list(problems)}",
    )


def invalid_schema(why: object) -> RegistryError:
    return RegistryError(422, 42201, f"Invalid schema: {why}")


def invalid_version(version: str) -> RegistryError:
    return RegistryError(
        422,
        42202,
        f"The specified version '{version[:80]}' is not a valid version id. Allowed values are "
        'between [1, 2^31-1] and the string "latest"',
    )


def invalid_compatibility() -> RegistryError:
    return RegistryError(
        422,
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive",
    )


def invalid_mode() -> RegistryError:
    return RegistryError(
        422, 42204, "Invalid mode. Valid values are READWRITE, READONLY and IMPORT."
    )


def not_permitted(why: str) -> RegistryError:
    return RegistryError(422, 42205, why)


def reference_exists(subject: str, version: int) -> RegistryError:
    return RegistryError(
        422, 42206, f"One or more references exist to the schema {subject} version {version}."
    )


def id_does_not_match(schema_id: int) -> RegistryError:
    return RegistryError(
        422, 42207, f"Another schema, or this schema in another form, has the id {schema_id}"
    )


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(422, 42208, f"The specified subject '{subject[:80]}' is not valid.")


def malformed(why: str) -> RegistryError:
    return RegistryError(422, 422, why)


def denied(why: str) -> RegistryError:
    return RegistryError(403, 40301, why)


def store_failed(why: str) -> RegistryError:
    return RegistryError(500, 50001, why)


def no_leader(why: str) -> RegistryError:
    return RegistryError(500, 50004, why)
