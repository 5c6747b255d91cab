"""What accounting refuses: one table of calls, arguments, and what is said of them."""

import dataclasses
import functools
import math

import dp_accounting
import numpy as np
import pytest

from dpfl import Participation, accounting, errors, mechanisms
from dpfl.accounting import clipping, events, own_events, running, selection, tradeoff
from dpfl.accounting.losses import dominating_pairs
from dpfl.accounting.losses.dominating_pairs import Neighbours
from dpfl.accounting.measured import estimate
from dpfl.accounting.reports import two_reports
from dpfl.accounting.sampling import balls_in_bins, monte_carlo
from dpfl.accounting.selection import Selection
from tests.accounting import plans

_AdaptiveClip = accounting.AdaptiveClip
_GAUSSIAN = dp_accounting.GaussianDpEvent(1.0)
_POISSON = dp_accounting.PoissonSampledDpEvent(0.1, _GAUSSIAN)
_FIXED_SIZE = dp_accounting.SampledWithoutReplacementDpEvent(10, 2, _GAUSSIAN)
_CAPPED = own_events.TruncatedPoissonDpEvent(9, 0.1, 3, _GAUSSIAN)
_BOTH = dp_accounting.ComposedDpEvent
_LONG_TREE = mechanisms.BinaryTree(2000)
_sampled = functools.partial(plans.sampled, 'without_replacement')
_hardened = functools.partial(plans.plan, noise='hardened')
_COUNTED = _AdaptiveClip(0.5, count_stddev=4.0)
_INDEPENDENT = mechanisms.Identity(6)
_DISCRETE = accounting.Discretization(1e3, 10, 1.0)
_FIRST = plans.plan(participation=Participation(5, 2))
_WITH_EARLIER = plans.plan(earlier=(_FIRST,))
_WORDS = accounting.ReleaseBefore('a list of words', 6.0, math.sqrt(2), 2e-7)
_RUN = plans.sampled('without_replacement')
_OF_STDDEV = r'its product with noise_multiplier=.* must be within \[1e-30, 1e\+30\]'
_CHOSEN = Selection('poisson', 3)
_SAMPLED = dict(sampling='poisson', population=100)
_monte_carlo = functools.partial(
    monte_carlo.epsilon,
    balls_in_bins.of_bins(np.eye(2), 2),
    **dict(stddev=1.0, delta=1e-5, samples=10),
)
_course = functools.partial(running.RunningEpsilon, _RUN)


def _scheduled(*steps):
    return plans.adaptive(adaptive_clip=None, clip_schedule=steps)


def _changed(value):
    return functools.partial(dataclasses.replace, value)


def _report(**changes):
    return plans.report(plans.independent(20, **changes))


def _estimate(cosines):
    return estimate.estimate(cosines, np.zeros(1000), 10**6, 1e-6, is_gaussian=True)


def _together(other):
    return two_reports.guarantee([_report(), _report(), other])


_HARDENED = _report(noise='hardened')
_of_plan = functools.partial(accounting.PrivacyReport.from_plan, _FIRST, [1e-6])
_production = plans.production
_update = clipping.update_noise_multiplier
_from_mu = accounting.epsilon_from_mu
_continued = _changed(_WITH_EARLIER)
_after_words = functools.partial(plans.plan, before=(_WORDS,))
_words = _changed(_WORDS)
_of_event = accounting.epsilon_of_event
_poisson_pair = functools.partial(dominating_pairs.poisson, 0.1, 1.0)
_fixed_size_pair = functools.partial(dominating_pairs.fixed_size, 10, 2, 1.0)
_selection = Selection.from_text

_REFUSED = [
    (_production, dict(mechanism='tree'), 'mechanism=tree: must be a mechanism, such as Bina'),
    (_production, dict(participation=2000), 'participation=2000: must be a Participation'),
    (_production, dict(noise_multiplier=-1), 'noise_multiplier=-1: must be a finite number >='),
    (_production, dict(noise_multiplier=1e-160), r'=1e-160: must be 0 \(no noise\) or'),
    (_production, dict(noise_multiplier=1e160), r'=1e\+160: .* within \[1e-30, 1e\+30\]'),
    (_production, dict(clip_norm=0), 'clip_norm=0: must be a finite number >= 1e-30 and <= 1e'),
    (_production, dict(clip_norm=1e308), r'clip_norm=1e\+308: must be .* <= 1e\+30'),
    (_production, dict(clip_norm=1e-25, noise_multiplier=1e-10), _OF_STDDEV),
    (_production, dict(clip_norm=1e20, noise_multiplier=1e20), _OF_STDDEV),
    (_production, dict(clients_per_round=0), 'clients_per_round=0: must be an integer >= 1'),
    (_production, dict(group_size=10**400), 'group_size=10*[.]{3}: .* <= 9007199254740992'),
    (_production, dict(group_size=0), 'group_size=0: must be an integer >= 1'),
    (_production, dict(adjacency='none'), 'adjacency=none: must be one of zero_out, replace_one'),
    (_production, dict(adjacency='replace_one_half_shift'), 'zero_out, replace_one; the nearest'),
    (_production, dict(mechanism=mechanisms.BinaryTree(1999)), 'rounds=2000: must be <= 1999'),
    *(
        (_sampled, dict(adjacency='replace_one_half_shift', **part), 'must be zero_out or replace')
        for part in (dict(adaptive_clip=_COUNTED), dict(discretization=_DISCRETE))
    ),
    # Adaptive clipping; clip norms change only where the noise starts afresh.
    (plans.adaptive, dict(mechanism=_LONG_TREE), 'mechanism=tree: must be restarted with ada'),
    (
        plans.adaptive,
        dict(clients_per_round=70),
        '=3.5: must be > 3.5, half of noise_mul',
    ),
    (plans.adaptive, dict(clip_schedule=((129, 3.0),)), 'must be empty with adaptive_clip'),
    (_scheduled, ((128, 1.0),), 'in which the noise starts afresh'),
    (_scheduled, ((129, 1.0), (129, 2.0)), 'round=129: must be an integer >= 1'),
    (_scheduled, ((0, 1.0),), 'round=0: must be an integer >= 1'),
    (_scheduled, ((129, math.nan),), 'norm=nan: must be a finite number >='),
    (_AdaptiveClip, dict(target_quantile=1.0), 'target_quantile=1.0: must be a finite number > 0'),
    (_AdaptiveClip, dict(learning_rate=0.0), 'learning_rate=0.0: must be a finite number > 0'),
    (_AdaptiveClip, dict(count_stddev=math.nan), 'count_stddev=nan: must be a finite number > 0'),
    (_update, (7.0, 3.5), 'count_stddev=3.5: must be > 3.5, half of noise_multiplier=7.0'),
    (_update, (7.0, 0.0), 'count_stddev=0.0: must be a finite number > 0'),
    (_update, (7.0, math.inf), 'count_stddev=inf: must be'),
    (_update, (math.nan, 3.0), 'noise_multiplier=nan: must be'),
    (_hardened, dict(noise='exact'), 'noise=exact: must be one of default, hardened'),
    (_hardened, dict(noise_multiplier=2.0**21), '=2097152.0: must be 0, or within'),
    (_hardened, dict(noise_multiplier=1e-4), 'noise_multiplier=0.0001: must be 0, or within'),
    (_hardened, dict(estimator=accounting.Estimator('clipped')), 'default with estimator=clipped'),
    (_hardened, dict(clip_norm=1.0, discretization=_DISCRETE), 'default with a discretization'),
    (_hardened, dict(mechanism=_INDEPENDENT, adaptive_clip=_COUNTED), 'default with adaptive_clip'),
    # Releases that are composed.
    (_continued, dict(adjacency='replace_one'), 'must be zero_out, as in'),
    (_continued, dict(noise='hardened'), 'must be default, as in the earlier run'),
    (_continued, dict(group_size=2), 'group_size=2: must be 1, as in the earlier run'),
    (_continued, dict(earlier=(_WITH_EARLIER,)), 'earlier: must be a flat list'),
    (_continued, dict(earlier=(_RUN,)), 'sampling=none: must be without_replacement, a'),
    (_after_words, dict(noise='hardened'), 'must be default with a list of words'),
    (_after_words, dict(group_size=2), 'group_size=2: must be 1 with a list of'),
    (_words, dict(noise_multiplier=0), 'noise_multiplier'),
    (_words, dict(delta=1), 'delta'),
    (_words, dict(replaced=2.5), 'replaced'),
    (_words, dict(name=''), 'name'),
    # Reports, which must be read again.
    *(
        (_of_plan, {name: value}, f'{name}=.*: must be ')
        for name, value in (
            ('log', [[1, 2]]),
            ('noise_is_seeded', 'yes'),
            ('also_not_covered', 'One sentence.'),
            ('stop_at_accuracy', math.nan),
            ('noise_key_digest', 'key'),
        )
    ),
    # Accountants.
    (_from_mu, (1, 0), 'delta=0: must be a finite number > 0 and < 1'),
    (_from_mu, (1, 1), 'delta=1: '),
    (_from_mu, (1, math.nan), 'delta=nan: '),
    (_from_mu, (-1, 0.1), 'mu=-1: '),
    (_from_mu, (math.nan, 0.1), 'mu=nan: '),
    (_from_mu, (1, 0.1, 'guess'), 'method=guess: must be one of pld'),
    (accounting.epsilon_from_rho, (-1, 0.1), 'rho=-1: '),
    (accounting.mu_from_rho, (math.nan,), 'rho=nan: '),
    (accounting.mu_from_epsilon, (0, 0.1), 'epsilon=0: '),
    *((_of_event, (_POISSON, delta), 'delta=') for delta in (0, 1, math.nan)),
    (_of_event, (_POISSON, 1e-6, 'analytic_gaussian'), '=analytic_gaussian: must be one of pld, '),
    (_of_event, (_FIXED_SIZE, 1e-6, 'analytic_gaussian'), 'pld, rdp, moments'),
    (_of_event, (_BOTH([_POISSON, _FIXED_SIZE]), 1e-6, 'rdp'), 'not be composed'),
    (_of_event, (_BOTH([_CAPPED, _POISSON]), 1e-6), 'truncated ones and samples'),
    (_of_event, (dp_accounting.LaplaceDpEvent(1.0), 1e-6), '=LaplaceDpEvent: must'),
    (_of_event, (_GAUSSIAN, 1e-6, 'guess'), 'method=guess'),
    (_of_event, (_GAUSSIAN, 1e-6, 'pld', None, 0), 'group_size=0: '),
    *(
        row
        for call in (tradeoff.of_event, events.renyi_divergences)
        for row in (
            (call, (_CAPPED, Neighbours('replace_one')), '^adjacency=replace_one: must be zero_ou'),
            (call, (_CAPPED, Neighbours(group_size=2)), '^group_size=2: must be 1 with truncated'),
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
    (_course, (1e-6, 'analytic_gaussian'), 'accountant'),
    (_course, (1.0, 'rdp'), 'delta'),
    (_course(1e-6, 'rdp').after, (0,), 'rounds'),
    (_course(1e-6, 'rdp').after, (8,), 'rounds'),
    # Reports.
    (_estimate, (np.zeros(1),), 'observed'),
    (_estimate, (np.array([0.0, 1.1]),), 'observed'),
    (_HARDENED.selected_from, (_CHOSEN,), 'must be default with a selection'),
    (_changed(_HARDENED), dict(selection=_CHOSEN), 'must be default with a selection'),
    (_report(**_SAMPLED, group_size=2).selected_from, (_CHOSEN,), 'group_size=2'),
    (selection.epsilon, (_POISSON, _CHOSEN, 0.0, Neighbours()), 'delta'),
    (_selection, ('poisson',), '^selected_from=poisson: must be a distribution and its m'),
    (_selection, ('poisson:0.5',), '^selected_from=poisson:0.5: .*mean must be'),
    (_selection, ('geometric:1',), '^selected_from=geometric:1: .*above 1'),
    (_selection, ('-1:3',), '^selected_from=-1:3: .*distribution must be'),
    (_selection, ('poisson:inf',), '^selected_from=poisson:inf: .*mean must be'),
    *(
        (accounting.About, dict(task=value), 'task=.*must be a short text')
        for value in ('a | b', 'x' * 81, '<b>', 'a\nb', 7)
    ),
    (plans.report, (plans.plan(), []), 'deltas=.*: must hold at least one'),
    (plans.report, (plans.plan(), [2]), '=2.0'),
    (_together, (_report(adjacency='replace_one'),), 'adjacency=.*, as in the first report'),
    (_together, (_report(group_size=2),), 'group_size=.*, as in the first report'),
]


@pytest.mark.parametrize('call, arguments, message', _REFUSED)
def test_bad_arguments_are_named(call, arguments, message):
    with pytest.raises(errors.ArgumentError, match=message):
        call(**arguments) if isinstance(arguments, dict) else call(*arguments)
