"""Reads of the Admin service that any broker answers from its newest image."""

from collections.abc import Callable, Mapping

from quorate.broker.admin import logger_levels
from quorate.broker.admin.admin_service import Read
from quorate.broker.common.errors import KafkaError
from quorate.broker.kafka.admin.config_description import ConfigReads
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.quota import quota_description
from quorate.broker.quota.work_turns import WorkTurns
from quorate.broker.security.acl_bindings import described_bindings, to_proto
from quorate.broker.security.authorizer import Authorizer, caller_of
from quorate.broker.security.scram_users import describe_users
from quorate.broker.security.token_access import TokenDescription
from quorate.common.acl_types import AclOperation
from quorate.metadata_log.codec import encode_pipeline
from quorate_proto.v1 import admin_pb2


class AdminReads:
    """Answers reads of the Admin service from the newest image; any broker can."""

    def __init__(
        self,
        images: MetadataFollower,
        configs: ConfigReads,
        tokens: TokenDescription,
        authorizer: Authorizer,
        wall_clock_ms: Callable[[], int],
        turns: WorkTurns,
    ) -> None:
        """Long answers are made in ``turns`` with the large requests of Kafka clients."""
        self._turns = turns
        self._images = images
        self._configs = configs
        self._tokens = tokens
        self._authorizer = authorizer
        self._wall_clock_ms = wall_clock_ms

    def methods(self) -> Mapping[str, Read]:
        """Return the methods of the Admin service by name."""
        return {
            "DescribePipelines": self.describe_pipelines,
            "DescribeAcls": self.describe_acls,
            "DescribeConfigs": self.describe_configs,
            "ListConfigEntities": self._configs.names,
            "DescribeClientQuotas": self.describe_client_quotas,
            "DescribeDelegationTokens": self.describe_tokens,
            "DescribeUserScramCredentials": self.describe_scram_users,
        }

    async def describe_configs(
        self, request: admin_pb2.DescribeConfigsRequest
    ) -> admin_pb2.DescribeConfigsResponse:
        """Describe configurations, or the levels of this broker's loggers."""
        rights = self._authorizer.rights_of(caller_of(request.context))
        levels = logger_levels.described(request, rights, self._configs.broker_id)
        return levels or await self._configs.describe(request)

    async def describe_acls(
        self, request: admin_pb2.DescribeAclsRequest
    ) -> admin_pb2.DescribeAclsResponse:
        """Describe the access control entries that match the filter of the request."""
        entries = self._images.image.acls
        client = caller_of(request.context)
        response = admin_pb2.DescribeAclsResponse()
        steps = described_bindings(self._authorizer, client, entries, request.filter)
        try:
            found = await self._turns.carry_out(steps)
        except KafkaError as error:
            response.error_code, response.error_message = error.code, error.message
            return response
        async for one in self._turns.through(found):
            response.bindings.append(to_proto(*one))
        return response

    async def describe_tokens(
        self, request: admin_pb2.DescribeDelegationTokensRequest
    ) -> admin_pb2.DescribeDelegationTokensResponse:
        """Describe the delegation tokens that the caller may see."""
        return await self._turns.carry_out(self._tokens.describe(request))

    async def describe_client_quotas(
        self,
        request: admin_pb2.DescribeClientQuotasRequest,
    ) -> admin_pb2.DescribeClientQuotasResponse:
        """Describe the client quotas that match the request."""
        try:
            rights = self._authorizer.rights_of(caller_of(request.context))
            rights.require_cluster(AclOperation.DESCRIBE_CONFIGS)
        except KafkaError as error:
            return admin_pb2.DescribeClientQuotasResponse(
                error_code=error.code, error_message=error.message
            )
        quotas = self._images.image.client_quotas
        return await self._turns.carry_out(quota_description.describe(quotas, request))

    async def describe_scram_users(
        self,
        request: admin_pb2.DescribeUserScramCredentialsRequest,
    ) -> admin_pb2.DescribeUserScramCredentialsResponse:
        """Describe the SCRAM credentials of the named users, or of all."""
        try:
            rights = self._authorizer.rights_of(caller_of(request.context))
            rights.require_cluster(AclOperation.DESCRIBE)
        except KafkaError as error:
            return admin_pb2.DescribeUserScramCredentialsResponse(
                error_code=error.code, error_message=error.message
            )
        return await self._turns.carry_out(describe_users(self._images.image, request.users))

    async def describe_pipelines(
        self,
        request: admin_pb2.DescribePipelinesRequest,
    ) -> admin_pb2.DescribePipelinesResponse:
        """Describe the named pipelines, or all that the caller may see.

        A named pipeline that the caller may not see is refused; unnamed ones are left out.
        """
        rights = self._authorizer.rights_of(caller_of(request.context))
        known = self._images.image.pipelines
        try:
            for name in request.names:
                rights.require_group(AclOperation.DESCRIBE, name)
        except KafkaError as error:
            return admin_pb2.DescribePipelinesResponse(
                error_code=error.code, error_message=error.message
            )
        names = dict.fromkeys(request.names) or {
            name for name in known if rights.may_group(AclOperation.DESCRIBE, name)
        }
        return admin_pb2.DescribePipelinesResponse(
            pipelines=[
                admin_pb2.DescribedPipeline(
                    pipeline=encode_pipeline(name, known[name]),
                    alive=known[name].run.lease_until_ms > self._wall_clock_ms(),
                )
                for name in sorted(names)
                if name in known
            ]
        )
