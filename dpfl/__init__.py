"""dpfl: federated learning with user-level differential privacy, simulated on TensorFlow Federated.

Layers, lowest first; a file imports its own layer and lower ones only:

* `dpfl.participation`: which rounds a client may take part in, and did (NumPy).
* `dpfl.mechanisms`: strategy matrices, their sensitivity, error and streaming (NumPy, SciPy).
* `dpfl.accounting`: rho, mu, epsilon, privacy plans and reports (dp_accounting).
* `dpfl.aggregators`: private aggregation for any TFF pipeline (TensorFlow, TFF).
* `dpfl.learning`, `dpfl.tasks`, `dpfl.simulation`: private training processes, data and models,
  and the loop that runs them.

Importing `dpfl`, `dpfl.mechanisms` or `dpfl.accounting` does not import TensorFlow. Import `dpfl`
before `tensorflow_federated`: that lets it run on current versions of Python and TensorFlow.
"""

from typing import TYPE_CHECKING

from dpfl.runtime import quiet_import, tff_import  # noqa: F401

if TYPE_CHECKING:
    from dpfl.participation import Participation, ParticipationLog

__version__ = '0.1.0'

__all__ = ['Participation', 'ParticipationLog', '__version__']

if not TYPE_CHECKING:

    def __getattr__(name):
        """Names of other modules, imported at their first use: `dpfl --help` needs none of them."""
        if name not in ('Participation', 'ParticipationLog'):
            raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
        from dpfl import participation

        return getattr(participation, name)
