"""The table of the requests that the registry serves, as Confluent's REST API has them."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from quorate.broker.registry.operations import (
    deletions,
    reads,
    registration,
    settings,
)
from quorate.broker.registry.operations.aliases import without_aliases
from quorate.broker.registry.operations.calls import Handle, Outcome, RegistryCall
from quorate.broker.registry.state.registry_state import RegistryState
from quorate.broker.security.authorizer import Rights


class Operation(NamedTuple):
    """One kind of request. ``name`` is its name in the audit log and between brokers."""

    name: str
    method: str
    path: str
    handle: Handle
    is_change: bool = False

    def decide(self, state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
        """Decide a request, whose subject may be an alias.

        Raises:
            RegistryError: it is refused.
        """
        return self.handle(state, without_aliases(state, self.path, call), rights)


OPERATIONS: Final = (
    Operation("GetSchemaTypes", "GET", "/schemas/types", reads.schema_types),
    Operation("GetSchemas", "GET", "/schemas", reads.list_schemas),
    Operation("GetSchemaById", "GET", "/schemas/ids/{id}", reads.get_by_id),
    Operation("GetSchemaTextById", "GET", "/schemas/ids/{id}/schema", reads.get_text_by_id),
    Operation("GetSubjectsOfId", "GET", "/schemas/ids/{id}/subjects", reads.subjects_of_id),
    Operation("GetVersionsOfId", "GET", "/schemas/ids/{id}/versions", reads.versions_of_id),
    Operation("GetSchemaByGuid", "GET", "/schemas/guids/{guid}", reads.get_by_guid),
    Operation("GetContexts", "GET", "/contexts", reads.list_contexts),
    Operation("GetSubjects", "GET", "/subjects", reads.list_subjects),
    Operation("GetVersions", "GET", "/subjects/{subject}/versions", reads.list_versions),
    Operation("GetVersion", "GET", "/subjects/{subject}/versions/{version}", reads.get_version),
    Operation(
        "GetVersionText",
        "GET",
        "/subjects/{subject}/versions/{version}/schema",
        reads.get_version_text,
    ),
    Operation(
        "GetReferencedBy",
        "GET",
        "/subjects/{subject}/versions/{version}/referencedby",
        reads.referenced_by,
    ),
    Operation("GetMetadata", "GET", "/subjects/{subject}/metadata", reads.latest_with_metadata),
    Operation("LookUpSchema", "POST", "/subjects/{subject}", registration.look_up),
    Operation(
        "RegisterSchema", "POST", "/subjects/{subject}/versions", registration.register, True
    ),
    Operation("DeleteSubject", "DELETE", "/subjects/{subject}", deletions.delete_subject, True),
    Operation(
        "DeleteVersion",
        "DELETE",
        "/subjects/{subject}/versions/{version}",
        deletions.delete_version,
        True,
    ),
    Operation(
        "CheckCompatibility",
        "POST",
        "/compatibility/subjects/{subject}/versions",
        registration.check_compatibility,
    ),
    Operation(
        "CheckCompatibilityWithVersion",
        "POST",
        "/compatibility/subjects/{subject}/versions/{version}",
        registration.check_compatibility,
    ),
    Operation("GetConfig", "GET", "/config", settings.get_config),
    Operation("PutConfig", "PUT", "/config", settings.put_config, True),
    Operation("DeleteConfig", "DELETE", "/config", settings.delete_config, True),
    Operation("GetSubjectConfig", "GET", "/config/{subject}", settings.get_config),
    Operation("PutSubjectConfig", "PUT", "/config/{subject}", settings.put_config, True),
    Operation("DeleteSubjectConfig", "DELETE", "/config/{subject}", settings.delete_config, True),
    Operation("GetMode", "GET", "/mode", settings.get_mode),
    Operation("PutMode", "PUT", "/mode", settings.put_mode, True),
    Operation("DeleteMode", "DELETE", "/mode", settings.delete_mode, True),
    Operation("GetSubjectMode", "GET", "/mode/{subject}", settings.get_mode),
    Operation("PutSubjectMode", "PUT", "/mode/{subject}", settings.put_mode, True),
    Operation("DeleteSubjectMode", "DELETE", "/mode/{subject}", settings.delete_mode, True),
)

HAS_SCHEMA: Final = Operation("HasSchema", "", "", reads.has_schema)
"""What only brokers ask each other, as the others are asked over HTTP as well."""

BY_NAME: Final[Mapping[str, Operation]] = {one.name: one for one in (*OPERATIONS, HAS_SCHEMA)}
