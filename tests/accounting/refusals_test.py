"""What accounting refuses: one table of calls, arguments, and what is said of them."""

import dataclasses
import functools
import math

import dp_accounting
import numpy as np
import pytest

from dpfl import Participation, accounting, errors, mechanisms
from dpfl.accounting import clipping, events, running, tradeoff
from dpfl.accounting.losses import dominating_pairs
from dpfl.accounting.losses.dominating_pairs import Neighbours
from dpfl.accounting.sampling import balls_in_bins, monte_carlo
from dpfl.accounting.selection import Selection
from tests.accounting import plans

_AdaptiveClip = accounting.AdaptiveClip
_GAUSSIAN = dp_accounting.GaussianDpEvent(1.0)
_POISSON = dp_accounting.PoissonSampledDpEvent(0.1, _GAUSSIAN)
_FIXED_SIZE = dp_accounting.SampledWithoutReplacementDpEvent(10, 2, _GAUSSIAN)
_CAPPED = dominating_pairs.TruncatedPoissonDpEvent(9, 0.1, 3, _GAUSSIAN)
_BOTH = dp_accounting.ComposedDpEvent
_LONG_TREE = mechanisms.BinaryTree(2000)
_adaptive = functools.partial(
    plans.production,
    mechanism=mechanisms.Restarted.every(mechanisms.BinaryTree(1024), rounds=2000),
    adaptive_clip=_AdaptiveClip(),
)
_scheduled = functools.partial(_adaptive, adaptive_clip=None)
_hardened = functools.partial(plans.plan, noise='hardened')
_FIRST = plans.plan(participation=Participation(5, 2))
_WITH_EARLIER = plans.plan(earlier=(_FIRST,))
_WORDS = accounting.ReleaseBefore('a list of words', 6.0, math.sqrt(2), 2e-7)
_RUN = plans.sampled('without_replacement')
_OF_STDDEV = r'its product with noise_multiplier=.* must be within \[1e-30, 1e\+30\]'


def _changed(value):
    return functools.partial(dataclasses.replace, value)


_epsilon_of = functools.partial(accounting.epsilon_of_event, _POISSON)
_from_mu = accounting.epsilon_from_mu
_update = clipping.update_noise_multiplier
_monte_carlo = functools.partial(
    monte_carlo.epsilon,
    balls_in_bins.of_bins(np.eye(2), 2),
    **dict(stddev=1.0, delta=1e-5, samples=10),
)
_poisson_pair = functools.partial(dominating_pairs.poisson, 0.1, 1.0)
_fixed_size_pair = functools.partial(dominating_pairs.fixed_size, 10, 2, 1.0)
_run = functools.partial(running.RunningEpsilon, _RUN)

_REFUSED = [
    # A plan.
    (plans.production, dict(mechanism='tree'), 'mechanism=tree: must be a mechanism, such as Bina'),
    (plans.production, dict(participation=2000), 'participation=2000: must be a Participation'),
    (
        plans.production,
        dict(noise_multiplier=-1),
        'noise_multiplier=-1: must be a finite number >=',
    ),
    (plans.production, dict(noise_multiplier=1e-160), r'=1e-160: must be 0 \(no noise\) or'),
    (plans.production, dict(noise_multiplier=1e160), r'=1e\+160: .* within \[1e-30, 1e\+30\]'),
    (plans.production, dict(noise_multiplier=math.nan), 'noise_multiplier=nan: must be'),
    (
        plans.production,
        dict(clip_norm=0),
        'clip_norm=0: must be a finite number >= 1e-30 and <= 1e',
    ),
    (plans.production, dict(clip_norm=1e308), r'clip_norm=1e\+308: must be .* <= 1e\+30'),
    (plans.production, dict(clip_norm=1e-25, noise_multiplier=1e-10), _OF_STDDEV),
    (plans.production, dict(clip_norm=1e20, noise_multiplier=1e20), _OF_STDDEV),
    (plans.production, dict(clients_per_round=0), 'clients_per_round=0: must be an integer >= 1'),
    (plans.production, dict(group_size=10**400), 'group_size=10*[.]{3}: .* <= 9007199254740992'),
    (plans.production, dict(group_size=0), 'group_size=0: must be an integer >= 1'),
    (
        plans.production,
        dict(adjacency='none'),
        'adjacency=none: must be one of zero_out, replace_one',
    ),
    (
        plans.production,
        dict(adjacency='replace_one_half_shift'),
        'zero_out, replace_one; the nearest',
    ),
    (plans.production, dict(sampling='a'), 'sampling=a: must be '),
    (plans.production, dict(adaptive_clip=1), 'adaptive_clip=1: must be of type AdaptiveClip or'),
    (plans.production, dict(discretization=1), 'must be of type Discretization or None'),
    (plans.production, dict(estimator='fixed'), 'estimator=fixed: must be of type Estimator'),
    (plans.production, dict(clip_schedule=5), 'must be a tuple of pairs of a round and a'),
    (plans.production, dict(earlier=(1,)), r'earlier=\(1,\): must be a tuple of plans'),
    (plans.production, dict(mechanism=mechanisms.BinaryTree(1999)), 'rounds=2000: must be <= 1999'),
    # Adaptive clipping; clip norms change only where the noise starts afresh.
    (_adaptive, dict(mechanism=_LONG_TREE), 'mechanism=tree: must be restarted with ada'),
    (_adaptive, dict(clients_per_round=70), 'count_stddev=3.5: must be > 3.5, half of noise_mul'),
    (_adaptive, dict(clip_schedule=((129, 3.0),)), 'must be empty with adaptive_clip'),
    (_scheduled, dict(clip_schedule=((128, 1.0),)), 'in which the noise starts afresh'),
    (
        _scheduled,
        dict(clip_schedule=((129, 1.0), (129, 2.0))),
        'round=129: must be an integer >= 1',
    ),
    (_scheduled, dict(clip_schedule=((0, 1.0),)), 'round=0: must be an integer >= 1'),
    (_scheduled, dict(clip_schedule=((129, math.nan),)), 'norm=nan: must be a finite number >='),
    (_AdaptiveClip, dict(target_quantile=1.0), 'target_quantile=1.0: must be a finite number > 0'),
    (_AdaptiveClip, dict(learning_rate=0.0), 'learning_rate=0.0: must be a finite number > 0'),
    (_AdaptiveClip, dict(count_stddev=math.nan), 'count_stddev=nan: must be a finite number > 0'),
    (_update, (7.0, 3.5), 'count_stddev=3.5: must be > 3.5, half of noise_multiplier=7.0'),
    (_update, (7.0, 0.0), 'count_stddev=0.0: must be a finite number > 0'),
    (_update, (7.0, math.inf), 'count_stddev=inf: must be'),
    (_update, (math.nan, 3.0), 'noise_multiplier=nan: must be'),
    # Hardened noise.
    (_hardened, dict(noise='exact'), 'noise=exact: must be one of default, hardened'),
    (_hardened, dict(noise_multiplier=2.0**21), '=2097152.0: must be 0, or within'),
    (_hardened, dict(noise_multiplier=1e-4), 'noise_multiplier=0.0001: must be 0, or within'),
    (_hardened, dict(estimator=accounting.Estimator('clipped')), 'default with estimator=clipped'),
    (
        functools.partial(_hardened, clip_norm=1.0),
        dict(discretization=accounting.Discretization(1e3, 10, 1.0)),
        'must be default with a discretization',
    ),
    (
        functools.partial(_hardened, mechanism=mechanisms.Identity(6)),
        dict(adaptive_clip=_AdaptiveClip(0.5, count_stddev=4.0)),
        'noise=hardened: must be default with adaptive_clip',
    ),
    # Releases that are composed.
    (_changed(_WITH_EARLIER), dict(adjacency='replace_one'), 'must be zero_out, as in'),
    (_changed(_WITH_EARLIER), dict(noise='hardened'), 'must be default, as in the earlier run'),
    (_changed(_WITH_EARLIER), dict(group_size=2), 'group_size=2: must be 1, as in the earlier run'),
    (_changed(_WITH_EARLIER), dict(earlier=(_WITH_EARLIER,)), 'earlier: must be a flat list'),
    (
        _changed(_WITH_EARLIER),
        dict(earlier=(_RUN,)),
        'sampling=none: must be without_replacement, a',
    ),
    (plans.plan, dict(before=(_WORDS,), noise='hardened'), 'must be default with a list of words'),
    (plans.plan, dict(before=(_WORDS,), group_size=2), 'group_size=2: must be 1 with a list of'),
    (_changed(_WORDS), dict(noise_multiplier=0), 'noise_multiplier'),
    (_changed(_WORDS), dict(delta=1), 'delta'),
    (_changed(_WORDS), dict(replaced=2.5), 'replaced'),
    (_changed(_WORDS), dict(name=''), 'name'),
    # Accountants.
    (_from_mu, (1, 0), 'delta=0: must be a finite number > 0 and < 1'),
    (_from_mu, (1, 1), 'delta=1: '),
    (_from_mu, (1, math.nan), 'delta=nan: '),
    (_from_mu, (-1, 0.1), 'mu=-1: '),
    (_from_mu, (math.nan, 0.1), 'mu=nan: '),
    (_from_mu, (1, 0.1, 'guess'), 'method=guess: must be one of pld'),
    (accounting.epsilon_from_rho, (-1, 0.1), 'rho=-1: '),
    (accounting.mu_from_epsilon, (0, 0.1), 'epsilon=0: '),
    (_epsilon_of, (0,), 'delta='),
    (_epsilon_of, (1,), 'delta='),
    (_epsilon_of, (math.nan,), 'delta='),
    (_epsilon_of, (1e-6, 'analytic_gaussian'), 'method=analytic_gaussian: must be one of pld, '),
    (accounting.epsilon_of_event, (_FIXED_SIZE, 1e-6, 'analytic_gaussian'), 'pld, rdp, moments'),
    (accounting.epsilon_of_event, (_BOTH([_POISSON, _FIXED_SIZE]), 1e-6, 'rdp'), 'not be composed'),
    (accounting.epsilon_of_event, (_BOTH([_CAPPED, _POISSON]), 1e-6), 'truncated ones and samples'),
    (
        accounting.epsilon_of_event,
        (dp_accounting.LaplaceDpEvent(1.0), 1e-6),
        '=LaplaceDpEvent: must',
    ),
    (accounting.epsilon_of_event, (_GAUSSIAN, 1e-6, 'guess'), 'method=guess'),
    *(
        (call, (_CAPPED, Neighbours(**neighbours)), f'^{message} with truncated Poisson samples')
        for call in (tradeoff.of_event, events.renyi_divergences)
        for neighbours, message in (
            (dict(adjacency='replace_one'), 'adjacency=replace_one: must be zero_out'),
            (dict(group_size=2), 'group_size=2: must be 1'),
        )
    ),
    *(
        (call, (Neighbours('zero_out', size),), 'group_size=')
        for call in (_poisson_pair, _fixed_size_pair)
        for size in (0, 65, 2.5)
    ),
    *((tradeoff.of_mu, (1.0, [rate]), 'fpr=') for rate in (0.0, 1.0, math.nan)),
    (_monte_carlo, dict(stddev=0.0), 'stddev=0.0: '),
    (_monte_carlo, dict(delta=1.0), 'delta=1.0: '),
    (_monte_carlo, dict(samples=0), 'samples=0: '),
    (_monte_carlo, dict(seed=-1), 'seed=-1: '),
    (_monte_carlo, dict(failure=0.0), 'failure=0.0: '),
    (_run, (1e-6, 'analytic_gaussian'), 'accountant'),
    (_run, (1.0, 'rdp'), 'delta'),
    (_run(1e-6, 'rdp').after, (0,), 'rounds'),
    (_run(1e-6, 'rdp').after, (8,), 'rounds'),
    # Texts.
    (Selection.from_text, ('poisson',), '^selected_from=poisson: must be a distribution and its m'),
    (Selection.from_text, ('poisson:0.5',), '^selected_from=poisson:0.5: .*mean must be'),
    (Selection.from_text, ('geometric:1',), '^selected_from=geometric:1: .*above 1'),
    (Selection.from_text, ('-1:3',), '^selected_from=-1:3: .*distribution must be'),
    (Selection.from_text, ('poisson:inf',), '^selected_from=poisson:inf: .*mean must be'),
    *(
        (accounting.About, dict(task=value), 'task=.*must be a short text')
        for value in ('a | b', 'x' * 81, '<b>', 'a\nb', 7)
    ),
    (plans.report, (plans.plan(), []), 'deltas=.*: must hold at least one'),
    (plans.report, (plans.plan(), [2]), 'delta=2.0'),
]


@pytest.mark.parametrize('call, arguments, message', _REFUSED)
def test_bad_arguments_are_named(call, arguments, message):
    with pytest.raises(errors.ArgumentError, match=message):
        call(**arguments) if isinstance(arguments, dict) else call(*arguments)
