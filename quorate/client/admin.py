"""The two admin clients, which talk over gRPC to the controller: one blocks, one is for event
loops.

Both have the methods of ``AdminMethods``, which are written once, in ``quorate.client.calls``.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Generic, ParamSpec, TypeVar, overload

from quorate.client.admin_connection import ClusterConnection
from quorate.client.admin_options import AdminOptions, read_admin_options
from quorate.client.bootstrap import discover
from quorate.client.call_steps import Steps
from quorate.client.calls import acl_calls as acls
from quorate.client.calls import cluster_calls as cluster
from quorate.client.calls import config_calls as configs
from quorate.client.calls import pipeline_calls as pipelines
from quorate.client.calls import quota_calls as quotas
from quorate.client.calls import replica_calls as replicas
from quorate.client.calls import token_calls as tokens
from quorate.client.calls import topic_calls as topics
from quorate.client.calls import transaction_calls as transactions
from quorate.client.calls import user_calls as users
from quorate.client.runners import AsyncRunner, BlockingRunner
from quorate.client.security import ClientSecurity, read_options

NO_OPTIONS: Final[Mapping[str, str]] = MappingProxyType({})

P = ParamSpec("P")
R = TypeVar("R")


class admin_method(Generic[P, R]):
    """A call as a method of both clients: it blocks in the one, and is awaited in the other."""

    def __init__(self, call: Callable[P, Steps[R]]) -> None:
        self._call = call
        self.__doc__ = call.__doc__
        self.__wrapped__ = call

    @overload
    def __get__(self, client: None, owner: type) -> "admin_method[P, R]": ...
    @overload
    def __get__(self, client: "AdminClient", owner: type) -> Callable[P, R]: ...
    @overload
    def __get__(
        self, client: "AsyncAdminClient", owner: type
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self

        def method(*args: P.args, **kwargs: P.kwargs) -> Any:  # noqa: ANN401 - see the overloads
            return client.carry_out(self._call(*args, **kwargs))

        method.__doc__ = self.__doc__
        return method


class AdminMethods:
    """The requests that can be made to a cluster."""

    create_topics = admin_method(topics.create_topics)
    delete_topics = admin_method(topics.delete_topics)
    create_partitions = admin_method(topics.create_partitions)
    remove_partitions = admin_method(topics.remove_partitions)
    list_topics = admin_method(topics.list_topics)
    describe_topics = admin_method(topics.describe_topics)
    elect_leaders = admin_method(replicas.elect_leaders)
    alter_partition_reassignments = admin_method(replicas.alter_partition_reassignments)
    list_partition_reassignments = admin_method(replicas.list_partition_reassignments)
    list_config_entities = admin_method(configs.list_config_entities)
    describe_configs = admin_method(configs.describe_configs)
    alter_configs = admin_method(configs.alter_configs)
    incremental_alter_configs = admin_method(configs.incremental_alter_configs)
    create_acls = admin_method(acls.create_acls)
    delete_acls = admin_method(acls.delete_acls)
    describe_acls = admin_method(acls.describe_acls)
    create_delegation_token = admin_method(tokens.create_delegation_token)
    renew_delegation_token = admin_method(tokens.renew_delegation_token)
    expire_delegation_token = admin_method(tokens.expire_delegation_token)
    describe_delegation_tokens = admin_method(tokens.describe_delegation_tokens)
    alter_client_quotas = admin_method(quotas.alter_client_quotas)
    describe_client_quotas = admin_method(quotas.describe_client_quotas)
    cluster_status = admin_method(cluster.cluster_status)
    cluster_alerts = admin_method(cluster.cluster_alerts)
    metrics = admin_method(cluster.metrics)
    resign_controller = admin_method(cluster.resign_controller)
    move_controller = admin_method(cluster.move_controller)
    update_features = admin_method(cluster.update_features)
    alter_user_scram_credentials = admin_method(users.alter_user_scram_credentials)
    describe_user_scram_credentials = admin_method(users.describe_user_scram_credentials)
    begin_pipeline_run = admin_method(pipelines.begin_run)
    commit_pipeline = admin_method(pipelines.commit)
    renew_pipeline_run = admin_method(pipelines.renew_run)
    reset_pipeline = admin_method(pipelines.reset)
    delete_pipeline = admin_method(pipelines.delete)
    describe_pipelines = admin_method(pipelines.describe)
    list_transactions = admin_method(transactions.list_transactions)
    describe_producers = admin_method(transactions.describe_producers)
    find_hanging_transactions = admin_method(transactions.find_hanging_transactions)
    abort_transaction = admin_method(transactions.abort_transaction)
    abort_hanging_transaction = admin_method(transactions.abort_hanging_transaction)


class AdminClient(AdminMethods):
    """Administers a cluster. Use it as a context manager, or ``close()`` it. It is not thread-safe.

    ``bootstrap_servers`` are Kafka addresses, ``host:port,host:port``; the gRPC addresses are found
    through them. ``grpc_addresses`` are gRPC addresses of brokers, where they are known already.
    ``options`` say how the client authenticates and which servers it trusts
    (``quorate.client.security``), and how it retries (``quorate.client.admin_options``).
    ``timeout_ms`` goes before the option ``default.api.timeout.ms``: every method raises
    ``ClusterUnreachable`` when no broker answers within it, and a change that is over the client's
    quota is retried until then. Without ``retry_on_quota_violation`` it is refused at once,
    whatever the options of the call say.
    Outcomes per topic are values: look at ``TopicResult.ok`` or call ``raise_for_error()``.
    """

    def __init__(
        self,
        bootstrap_servers: str | None = None,
        *,
        grpc_addresses: Sequence[str] = (),
        timeout_ms: int | None = None,
        client_id: str = "quorate-admin",
        retry_on_quota_violation: bool | None = None,
        options: Mapping[str, str] = NO_OPTIONS,
    ) -> None:
        own = read_admin_options(
            options, timeout_ms=timeout_ms, retry_on_quota_violation=retry_on_quota_violation
        )
        security = read_options(own.others)
        self._runner = BlockingRunner(
            _way_in(bootstrap_servers, grpc_addresses, security.kafka), security.grpc
        )
        self._connection = _connection(
            bootstrap_servers or ",".join(grpc_addresses), own, client_id
        )

    def carry_out(self, steps: Steps[R]) -> R:
        """Carry out a call of ``quorate.client.calls``, and return its result."""
        return self._runner.run(self._connection.carry_out(steps))

    def close(self) -> None:
        self._runner.close()

    def __enter__(self) -> "AdminClient":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class AsyncAdminClient(AdminMethods):
    """The ``AdminClient`` for event loops: the same methods are awaited, and may overlap.

    Use it as an asynchronous context manager, or ``await close()``.
    """

    def __init__(
        self,
        bootstrap_servers: str | None = None,
        *,
        grpc_addresses: Sequence[str] = (),
        timeout_ms: int | None = None,
        client_id: str = "quorate-admin",
        retry_on_quota_violation: bool | None = None,
        options: Mapping[str, str] = NO_OPTIONS,
    ) -> None:
        own = read_admin_options(
            options, timeout_ms=timeout_ms, retry_on_quota_violation=retry_on_quota_violation
        )
        security = read_options(own.others)
        self._runner = AsyncRunner(
            _way_in(bootstrap_servers, grpc_addresses, security.kafka), security.grpc
        )
        self._connection = _connection(
            bootstrap_servers or ",".join(grpc_addresses), own, client_id
        )

    async def carry_out(self, steps: Steps[R]) -> R:
        """Carry out a call of ``quorate.client.calls``, and return its result."""
        return await self._runner.run(self._connection.carry_out(steps))

    async def close(self) -> None:
        await self._runner.close()

    async def __aenter__(self) -> "AsyncAdminClient":
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


def _connection(description: str, options: AdminOptions, client_id: str) -> ClusterConnection:
    return ClusterConnection(
        description,
        timeout_ms=options.timeout_ms,
        client_id=client_id,
        retry_on_quota_violation=options.retry_on_quota_violation,
    )


def _way_in(
    bootstrap_servers: str | None, grpc_addresses: Sequence[str], security: ClientSecurity
) -> Callable[[], Iterable[str]]:
    """Return the function that finds gRPC addresses, from the one of the two arguments that is
    given."""
    if (bootstrap_servers is None) == (not grpc_addresses):
        raise ValueError("give either bootstrap_servers or grpc_addresses")

    def addresses() -> Iterable[str]:
        if bootstrap_servers is None:
            return grpc_addresses
        found = discover(bootstrap_servers, security=security)
        return [broker.grpc for broker in found.brokers if broker.grpc]

    return addresses
