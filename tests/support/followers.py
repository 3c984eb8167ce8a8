"""Followers of the metadata log for tests, which say themselves what the newest image is."""

from collections.abc import Callable

from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.common.types import MetadataOffset
from quorate.metadata_log.image import Image


class ShownImage(MetadataFollower):
    """A follower that shows what a function returns, and tells nobody of changes."""

    def __init__(self, image: Callable[[], Image] = Image) -> None:
        # The base class would follow a quorum; there is none here.
        self._shown = image

    @property
    def image(self) -> Image:  # type: ignore[override]
        """The image as the test has it at this moment."""
        return self._shown()

    def show(self, image: Image) -> None:
        """Show this image from now on."""
        self._shown = lambda: image

    async def wait_for(self, offset: MetadataOffset) -> Image:
        """Return the image at once: a test is never behind."""
        return self.image
