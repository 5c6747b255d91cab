"""Faults that are put into the images of some devices. No TensorFlow."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from dpfl import _validate
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
# The one setting that older versions had: the share of devices with `inverted`.
_OLD = 'inverted_share'
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


def from_old(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values of a task with images, also if a version without `inject` has written them.

    Raises:
      ArgumentError: if the old share is out of range.
    """
    if not isinstance(values, Mapping) or _OLD not in values:
        return values
    rest = {name: value for name, value in values.items() if name != _OLD}
    share = _validate.number(_OLD, values[_OLD], minimum=0, maximum=1)
    if share:
        rest.setdefault('faults', {'inject': ['inverted'], 'inject_share': share})
    return rest


def as_of_old(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by name as versions without `inject` have them, unless there are other faults."""
    inject = values.get('inject')
    if inject not in ((), ('inverted',)):
        return dict(values)
    rest = {name: value for name, value in values.items() if name not in ImageFaultConfig().flat()}
    return rest | {_OLD: values['inject_share'] if inject else 0.0}
