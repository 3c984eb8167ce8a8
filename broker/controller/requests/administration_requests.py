"""The handlers for configurations, ACLs, client quotas and SCRAM credentials, which are changed
item by item (F6).

These changes, and those of delegation tokens, are carried out by the controller, and by any broker
at inter_broker_protocol 1. Brokers receive them by watch, so nothing is published.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from quorate.broker.changes import table
from quorate.broker.config.dynamic_config import LiveConfiguration
from quorate.broker.config.ignored_keys import warn_of_ignored_changes
from quorate.broker.controller.command_pipeline import CommandPipeline, DecisionWriter
from quorate.broker.controller.managers import (
    acl_manager,
    client_quota_manager,
    config_manager,
    scram_manager,
)
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.tenure import Requester
from quorate.broker.security.token_secrets import SecretKeys
from quorate.metadata_log.image import Image
from quorate_proto.v1 import admin_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class AdministrationContext:
    """The objects that administration needs, whether the controller or a bridging broker writes.

    ``clock_ms`` is the wall clock, in milliseconds since the epoch. ``token_keys`` returns the keys
    of delegation tokens in force, newest first. ``draw_id`` returns a new id that was never used.
    """

    config: LiveConfiguration
    clock_ms: Callable[[], int]
    token_keys: Callable[[], SecretKeys]
    draw_id: Callable[[], str]


class AdministrationRequests:
    """The handlers of changes that are a list of independent items."""

    def __init__(
        self, tenure: ControllerTenure, decisions: DecisionWriter, config: LiveConfiguration
    ) -> None:
        self._tenure = tenure
        self._decisions = decisions
        self._config = config

    def register(self, pipeline: CommandPipeline) -> None:
        """Handle these changes in ``pipeline``."""
        pipeline.register(table.INCREMENTAL_ALTER_CONFIGS, self.incremental_alter_configs)
        pipeline.register(table.ALTER_CONFIGS, self.alter_configs)
        pipeline.register(table.CREATE_ACLS, self.create_acls)
        pipeline.register(table.DELETE_ACLS, self.delete_acls)
        pipeline.register(table.ALTER_CLIENT_QUOTAS, self.alter_client_quotas)
        pipeline.register(table.ALTER_USER_SCRAM_CREDENTIALS, self.alter_scram_credentials)

    async def incremental_alter_configs(
        self, request: admin_pb2.IncrementalAlterConfigsRequest, requester: Requester
    ) -> admin_pb2.IncrementalAlterConfigsResponse:
        """Change some keys of each entity."""
        results = await self._decisions.write_each(
            lambda image: config_manager.alter(
                image, request.changes, tenure=self._tenure, config=self._config
            ),
            requester,
            validate_only=request.validate_only,
        )
        changes = ((one.entity_type, one.entity_name, one.values) for one in request.changes)
        warn_of_ignored_changes(changes, results)
        return admin_pb2.IncrementalAlterConfigsResponse(results=results)

    async def alter_configs(
        self, request: admin_pb2.AlterConfigsRequest, requester: Requester
    ) -> admin_pb2.AlterConfigsResponse:
        """Set the named keys of each entity, and unset all others."""
        results = await self._decisions.write_each(
            lambda image: config_manager.replace(
                image, request.replacements, tenure=self._tenure, config=self._config
            ),
            requester,
            validate_only=request.validate_only,
        )
        changes = ((one.entity_type, one.entity_name, one.values) for one in request.replacements)
        warn_of_ignored_changes(changes, results)
        return admin_pb2.AlterConfigsResponse(results=results)

    async def create_acls(
        self, request: admin_pb2.CreateAclsRequest, requester: Requester
    ) -> admin_pb2.CreateAclsResponse:
        """Add access control entries."""
        results = await self._decisions.write_each(
            lambda image: acl_manager.create(image, request.bindings, tenure=self._tenure),
            requester,
        )
        return admin_pb2.CreateAclsResponse(results=results)

    async def delete_acls(
        self, request: admin_pb2.DeleteAclsRequest, requester: Requester
    ) -> admin_pb2.DeleteAclsResponse:
        """Remove access control entries.

        If that failed, no entry is reported as removed. It is safe to repeat the request.
        """
        results: list[admin_pb2.DeleteAclsResult] = []

        def delete(image: Image) -> list[acl_manager.AclDeletion]:
            deletions = acl_manager.delete(image, request.filters, tenure=self._tenure)
            results.extend(parts[0].result for parts in deletions)
            return list(itertools.chain.from_iterable(deletions))

        await self._decisions.write_each(delete, requester)
        for result in results:
            if result.error_code:
                result.ClearField("deleted")
        return admin_pb2.DeleteAclsResponse(results=results)

    async def alter_client_quotas(
        self, request: admin_pb2.AlterClientQuotasRequest, requester: Requester
    ) -> admin_pb2.AlterClientQuotasResponse:
        """Set and remove client quotas."""
        results = await self._decisions.write_each(
            lambda image: client_quota_manager.alter(
                image, request.alterations, tenure=self._tenure
            ),
            requester,
            validate_only=request.validate_only,
        )
        return admin_pb2.AlterClientQuotasResponse(results=results)

    async def alter_scram_credentials(
        self, request: admin_pb2.AlterUserScramCredentialsRequest, requester: Requester
    ) -> admin_pb2.AlterUserScramCredentialsResponse:
        """Set and remove SCRAM credentials of users."""
        results = await self._decisions.write_each(
            lambda image: scram_manager.alter(image, request, tenure=self._tenure), requester
        )
        return admin_pb2.AlterUserScramCredentialsResponse(results=results)
