"""What the tests of runs share."""

import matplotlib.figure
import pytest

from dpfl.reporting import privacy_page
from dpfl.simulation import metrics


class _Blank(matplotlib.figure.Figure):
    """A figure that is saved as a file without an image."""

    def savefig(self, file, **_):
        file.write(b'no image')


def _no_figures(*_):
    return ()


@pytest.fixture(scope='module', name='undrawn')
def _undrawn():
    """Runs draw nothing: figures take most of the time of a run whose rounds take none."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(privacy_page, '_figures', _no_figures)
        patched.setattr(metrics.plots, 'training_curves', lambda *_: _Blank())
        yield
