"""What is composed with the rounds of a run: earlier runs, and releases before training.

A run may begin with the model of earlier runs, perhaps on the same clients. Before its first round
it may release something, such as a vocabulary that was found privately.
All clients take part in such a release, whatever the sampling of the rounds is, so nothing
amplifies it. It is a Gaussian release of sums over the clients, or of several sums one after the
other, each of which may depend on those before it. It may also have a probability `delta` of
revealing anything. docs/research/before_training.md has the theorem: neighbours are as hard to
tell apart as by a Gaussian release that with probability `delta` is replaced by the answer itself.
"""

import dataclasses
from typing import TYPE_CHECKING, Annotated

from dpfl import _json, errors
from dpfl._validate import SCALE, Limits
from dpfl.accounting import dp, events
from dpfl.accounting.losses.dominating_pairs import Neighbours
from dpfl.accounting.part import (
    ASSUMPTION,
    COMPOSED,
    DEFINITION,
    NOT_COVERED,
    VOID,
    Facts,
    Part,
    Run,
)
from dpfl.mechanisms import rounding

if TYPE_CHECKING:
    from dpfl.accounting.plan import PrivacyPlan
    from dpfl.accounting.reports.report import PrivacyReport

# What earlier runs have in common with the run, so that they can be composed.
_SAME = ('sampling_name', 'adjacency', 'noise', 'group_size')
_UNIT = 'norms of what one client adds'


@dataclasses.dataclass(frozen=True)
class Earlier(Part):
    """The plans of earlier runs, which are composed with the rounds."""

    plans: 'tuple[PrivacyPlan, ...]'

    words = 'earlier runs'

    def check(self, plan: 'PrivacyPlan') -> None:
        for earlier in self.plans:
            if earlier.earlier:
                raise errors.ArgumentError(
                    'earlier', errors.NOT_SHOWN, 'must be a flat list of plans'
                )
            for name in _SAME:
                value, same = getattr(plan, name), getattr(earlier, name)
                if same != value:
                    raise errors.ArgumentError(
                        name.removesuffix('_name'), value, f'must be {same}, as in the earlier run'
                    )

    def run(self, plan: 'PrivacyPlan', run: Run) -> Run:
        runs = [earlier.run for earlier in self.plans]
        return run.then(
            *(earlier.dp_event() for earlier in self.plans),
            mus=tuple(earlier.total_mu for earlier in runs),
            deltas=tuple(delta for earlier in runs for delta in earlier.deltas),
        )

    def facts(self, report: 'PrivacyReport', facts: Facts) -> None:
        facts.put(
            COMPOSED,
            'earlier',
            ', together with the {runs} earlier run(s) it continues from,',
            runs=len(self.plans),
        )
        if not all(earlier.noise_multiplier for earlier in self.plans):
            facts.put(VOID, 'earlier', 'an earlier run that it continues from added no noise')


@dataclasses.dataclass(frozen=True)
class ReleaseBefore(_json.JsonFields):
    """A release before training.

    Attributes:
      name: what was released, for people.
      noise_multiplier: standard deviation of the noise divided by the L2 bound of what one client
        adds to the sums, above 0.
      replaced: how far the sums move if a client is replaced by another one, in these bounds, above
        0 and at most 2.
      delta: probability that something is revealed in spite of the noise, at least 0 and below 1.

    Raises:
      ArgumentError: if a field is out of its range.

    Example:
      >>> ReleaseBefore('words', noise_multiplier=8.0).to_dict()
      {'name': 'words', 'noise_multiplier': 8.0, 'replaced': 2.0, 'delta': 0.0}
    """

    name: str
    noise_multiplier: Annotated[float, Limits(_UNIT, **SCALE)]
    replaced: Annotated[float, Limits(_UNIT, above=0, maximum=2)] = 2.0
    delta: Annotated[float, Limits('probability', minimum=0, below=1)] = 0.0

    def __post_init__(self):
        if not isinstance(self.name, str) or not self.name:
            raise errors.ArgumentError('name', self.name, 'must be a text')
        super().__post_init__()

    def mu(self, neighbours: Neighbours) -> float:
        """Gaussian DP parameter of the noised sums."""
        shift = 1.0 if neighbours.adjacency == 'zero_out' else self.replaced
        return rounding.quotient_up(shift * neighbours.group_size, self.noise_multiplier)


@dataclasses.dataclass(frozen=True)
class Before(Part):
    """The releases before training of a plan: they are composed with the rounds."""

    releases: tuple[ReleaseBefore, ...]

    @property
    def words(self) -> str:
        return ' and '.join(release.name for release in self.releases)

    @property
    def delta(self) -> float:
        """Probability that one of them reveals something, rounded up."""
        return events.total_delta([release.delta for release in self.releases])

    def check(self, plan: 'PrivacyPlan') -> None:
        # A threshold hides the words of one client.
        if plan.group_size > 1 and self.delta:
            raise errors.ArgumentError(
                'group_size', plan.group_size, f'must be 1 with {self.words}'
            )

    def run(self, plan: 'PrivacyPlan', run: Run) -> Run:
        mus = tuple(release.mu(plan.neighbours) for release in self.releases)
        gaussian = [dp.GaussianDpEvent(1 / mu) for mu in mus]
        revealing = [dp.RevealingDpEvent(self.delta)] if self.delta else []
        deltas = tuple(release.delta for release in self.releases if release.delta)
        return run.then(*gaussian, *revealing, mus=mus, deltas=deltas)

    def facts(self, report: 'PrivacyReport', facts: Facts) -> None:
        for number, release in enumerate(self.releases):
            facts.put(
                ASSUMPTION,
                f'before@{number}',
                'Released before training, once: {name}, from sums over all clients with noise of '
                'standard deviation {noise:.4g} times the norm of what one client adds to them '
                '(mu = {mu}). All clients took part, so sampling does not amplify it.',
                name=release.name,
                noise=release.noise_multiplier,
                mu=rounding.round_up(release.mu(report.plan.neighbours)),
            )
            if release.delta:
                facts.put(
                    ASSUMPTION,
                    f'before@{number}/delta',
                    'With probability at most {delta} it shows something that only one client has: '
                    'that is a part of every delta of this report.',
                    delta=rounding.round_up(release.delta),
                )
        facts.put(
            NOT_COVERED,
            'earlier_data',
            'Data used before the run in other ways than for what was released before training, '
            'such as data for pre-training.',
        )
        facts.put(
            DEFINITION,
            'adjacency/before',
            'What it adds to the releases before training is then {how} too.',
            how='zero' if report.plan.adjacency == 'zero_out' else 'replaced',
        )
        released = ''.join(
            f'{release.name} (released before training), ' for release in self.releases
        )
        facts.change(DEFINITION, 'output', before=released)
        facts.put(
            COMPOSED,
            'before',
            ', together with what was released before it ({names}),',
            names=self.words,
        )
