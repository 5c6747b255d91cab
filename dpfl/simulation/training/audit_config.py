"""Settings of an audit with canary clients. Does not import TensorFlow."""

import dataclasses

from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError
from dpfl.simulation.training.privacy_config import PrivacyConfig

DEFAULT_CANARIES = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditConfig(Settings):
    """Whether and how a run tests its sums and estimates its own privacy loss."""

    audit: bool = setting(
        False,
        'Also test the sums of this run, clipped updates and noise, against the plan, and estimate '
        'epsilon: canary clients with known random updates take part besides the real ones, and '
        'the report says how well they can be told from canaries that did not, and which faults '
        'would have shown (docs/reference/audits.md). Their updates act like a little more '
        'noise; the guarantee does not change.',
    )
    audit_canaries: int | None = setting(
        None,
        'Number of canaries of --audit, of which half take part; 1000 by default.',
        minimum=4,
        maximum=10**6,
    )

    @property
    def canaries(self) -> int:
        """How many canaries the run has; 0 without an audit."""
        if not self.audit:
            return 0
        return DEFAULT_CANARIES if self.audit_canaries is None else self.audit_canaries

    def check_run(
        self,
        privacy: PrivacyConfig,
        stop_at_accuracy: float | None = None,
    ) -> None:
        """Checks that a run with these settings can have canaries if it is to be audited.

        Raises:
          ArgumentError: if it cannot; it names `audit`.
        """
        if not self.audit:
            return
        refused = {
            f'noise={privacy.noise}, whose sums canaries would not pass': (
                privacy.noise == 'hardened'
            ),
            'clipping=per_layer, which bounds each tensor of a canary': privacy.clipping != 'flat',
            'estimator=clipped, whose denominator would count canaries': (
                privacy.estimator != 'fixed'
            ),
            'example_cap, since canaries have no examples': privacy.example_cap is not None,
            'stop_at_accuracy, since canaries take part in planned rounds': (
                stop_at_accuracy is not None
            ),
        }
        for what, is_refused in refused.items():
            if is_refused:
                raise ArgumentError('audit', True, f'cannot be combined with {what}')

    def check(self) -> None:
        """Checks that the number of canaries is only given with an audit."""
        if self.audit_canaries is not None and not self.audit:
            raise ArgumentError('audit_canaries', self.audit_canaries, 'needs audit')
