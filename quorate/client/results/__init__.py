"""Typed answers of the admin client: frozen values, independent of the wire."""

from quorate.client.results.cluster import BrokerInfo as BrokerInfo
from quorate.client.results.cluster import ClusterStatus as ClusterStatus
from quorate.client.results.configs import ConfigChange as ConfigChange
from quorate.client.results.configs import ConfigDescription as ConfigDescription
from quorate.client.results.configs import ConfigEntity as ConfigEntity
from quorate.client.results.configs import ConfigEntry as ConfigEntry
from quorate.client.results.configs import ConfigReplacement as ConfigReplacement
from quorate.client.results.configs import ConfigResult as ConfigResult
from quorate.client.results.configs import ConfigSource as ConfigSource
from quorate.client.results.configs import ConfigSynonym as ConfigSynonym
from quorate.client.results.features import FeatureInfo as FeatureInfo
from quorate.client.results.features import FeatureResult as FeatureResult
from quorate.client.results.partitions import ElectionType as ElectionType
from quorate.client.results.partitions import OngoingReassignment as OngoingReassignment
from quorate.client.results.partitions import PartitionName as PartitionName
from quorate.client.results.partitions import PartitionResult as PartitionResult
from quorate.client.results.tokens import DelegationToken as DelegationToken
from quorate.client.results.topics import CreatePartitionsOptions as CreatePartitionsOptions
from quorate.client.results.topics import NewPartitions as NewPartitions
from quorate.client.results.topics import NewTopic as NewTopic
from quorate.client.results.topics import PartitionInfo as PartitionInfo
from quorate.client.results.topics import TopicInfo as TopicInfo
from quorate.client.results.topics import TopicResult as TopicResult
