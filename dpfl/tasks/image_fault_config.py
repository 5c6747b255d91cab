"""Faults that are put into the images of some devices. No TensorFlow."""

import dataclasses

from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError

# In the order in which a device that has several of them applies them.
IMAGE_FAULTS = (
    'duplicated_client',
    'swapped_labels',
    'transposed',
    'encoding',
    'truncated',
    'inverted',
)
_DEFAULT_SHARE = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageFaultConfig(Settings):
    """Faults of some devices, to see whether they are found."""

    inject: tuple[str, ...] = setting(
        (),
        'Faults that some devices of a task of images get, comma-separated. inverted: black for '
        'white. swapped_labels: classes 2k and 2k + 1 have the label of each other. transposed: '
        'rows for columns. truncated: the lower half is blank. encoding: samples of 16 bits are '
        'read as bytes. duplicated_client: the device has the examples of client 0. Held-out '
        'clients have none.',
        choices=IMAGE_FAULTS,
    )
    inject_share: float = setting(
        _DEFAULT_SHARE,
        'Share of the devices that have a fault of --inject; each fault is drawn by itself.',
        minimum=0,
        maximum=1,
    )

    def check(self) -> None:
        """Checks that each fault is named once, and that a share has a fault."""
        if len(set(self.inject)) < len(self.inject):
            raise ArgumentError('inject', ','.join(self.inject), 'must name each fault once')
        if not self.inject and self.inject_share != _DEFAULT_SHARE:
            raise ArgumentError('inject_share', self.inject_share, 'needs inject')
