"""What any broker answers over gRPC from what it knows itself: method name → what answers it."""

from collections.abc import Mapping

from broker.config_description import ConfigReads
from broker.control.admin_service import Read
from broker.control.ports import Images


def admin_reads(_images: Images, configs: ConfigReads) -> Mapping[str, Read]:
    """The Admin service's reads. One that is not among them is UNIMPLEMENTED."""
    return {"DescribeConfigs": configs.describe}
