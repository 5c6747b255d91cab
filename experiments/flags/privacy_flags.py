"""Flags of a privacy plan, and the plan that they make. No TensorFlow."""

from absl import flags

from dpfl import accounting, mechanisms
from experiments.command import command_line
from experiments.flags import schema_flags, strategies

_TREES = {'tree': mechanisms.BinaryTree, 'honaker_tree': mechanisms.HonakerTree}
_OPTIMIZED = ('banded', 'banded_toeplitz', 'banded_inverse', 'blt')
MECHANISMS = ('gaussian', *_TREES, *_OPTIMIZED)

flags.adopt_module_key_flags(schema_flags)
_STRATEGY = flags.DEFINE_string(
    'strategy',
    None,
    'Parameters of the mechanism: a name in dpfl/strategies, or a file that '
    'dpfl.mechanisms.save wrote. They are used for --rounds rounds.',
)
_BLT_DECAY = flags.DEFINE_list(
    'blt_decay', None, 'Buffer decays (theta) of a BLT, comma-separated.'
)
_BLT_SCALE = flags.DEFINE_list(
    'blt_scale', None, 'Output scales (omega) of a BLT, comma-separated.'
)
_TREE_RELEASED = flags.DEFINE_enum(
    'tree_released',
    'nodes',
    mechanisms.tree.RELEASED,
    'What the sensitivity of a tree counts as released: all of its noised nodes, as the published '
    'accounting does, or the prefix sums, which is what is released.',
)
_RESTART_FIRST = flags.DEFINE_integer(
    'restart_first',
    None,
    'Start the noise afresh after this round, counted from 0, and then after every '
    '--restart_every rounds, as adaptive clipping does (128 and 1024 in document 000).',
    lower_bound=0,
)
_RESTART_EVERY = flags.DEFINE_integer(
    'restart_every', None, 'Rounds between two restarts; with --restart_first.', lower_bound=1
)
_NOISE_MULTIPLIER = flags.DEFINE_float(
    'noise_multiplier',
    None,
    'Standard deviation of the noise z divided by the clip norm.',
    lower_bound=0,
)
_DELTA = flags.DEFINE_float('delta', 1e-10, 'Delta at which epsilon is given.')
_ACCOUNTANT = flags.DEFINE_enum(
    'accountant',
    'pld',
    accounting.ACCOUNTANTS,
    'How epsilon is computed. best: the least of all that know the plan, which the report names; '
    'it is the default with --sampling. Without replacement only rdp and moments know how.',
)
_ADJACENCY = flags.DEFINE_enum(
    'adjacency',
    'zero_out',
    accounting.ADJACENCIES,
    'Neighbouring runs: one client zeroed out, or one client replaced by another. '
    'replace_one_half_shift: for --sampling=without_replacement, counts half of what replacing a '
    'client can do, as document 004 does.',
)


def mechanism(name: str) -> mechanisms.Mechanism:
    """The mechanism `name` over --rounds rounds, with the parameters of the flags."""
    return _restarted(_base_mechanism(name, schema_flags.required('rounds')))


def _restarted(
    base: mechanisms.Mechanism, by_default: tuple[int, int] | None = None
) -> mechanisms.Mechanism:
    """The mechanism with the restarts of the flags, or those by default."""
    given = (_RESTART_FIRST.value, _RESTART_EVERY.value)
    if (given[0] is None) != (given[1] is None):
        raise command_line.UsageError('--restart_first, --restart_every: go together')
    schedule = by_default if given[0] is None else given
    if schedule is None or isinstance(base, mechanisms.Restarted):
        return base
    if schedule is by_default and isinstance(base, mechanisms.Identity):
        return base  # Every round starts afresh.
    with command_line.refusing_bad_values():
        return mechanisms.Restarted.every(base, *schedule)


def _base_mechanism(name: str, rounds: int) -> mechanisms.Mechanism:
    given = [flag.name for flag in (_STRATEGY, _BLT_DECAY, _BLT_SCALE) if flag.value]
    if given and name not in _OPTIMIZED:
        raise command_line.UsageError(f'--{given[0]}: mechanism={name} has no parameters')
    with command_line.refusing_bad_values():
        if name == 'gaussian':
            return mechanisms.Identity(rounds)
        if name in _TREES:
            return _TREES[name](rounds, _TREE_RELEASED.value)
        if name == 'blt' and given == [_BLT_DECAY.name, _BLT_SCALE.name]:
            return mechanisms.Blt(rounds, _numbers(_BLT_DECAY), _numbers(_BLT_SCALE))
        if given != [_STRATEGY.name]:
            alternative = ', or --blt_decay and --blt_scale' if name == 'blt' else ''
            raise command_line.UsageError(f'--mechanism={name}: needs --strategy{alternative}')
        return _load(name).with_rounds(rounds)


def plan(
    name: str,
    *,
    clip_norm: float,
    clients_per_round: int,
    chosen: mechanisms.Mechanism | None = None,
    restarts: tuple[int, int] | None = None,
    **others,
) -> accounting.PrivacyPlan:
    """The plan of the mechanism `name`, or the one that was chosen, and the other flags.

    `name` may be 'none': updates are clipped, but there is no noise and no guarantee. The noise is
    that of --noise_multiplier or, where the binary has that flag, what --target_epsilon needs.
    `restarts` are those, first and every, where the flags give none. `others` are fields of the
    plan: sampling, population, discretization, adaptive_clip, estimator.
    """
    silent = name == 'none'
    fields = dict(
        mechanism=_restarted(chosen or mechanism('gaussian' if silent else name), restarts),
        participation=schema_flags.participation(),
        clip_norm=clip_norm,
        clients_per_round=clients_per_round,
        adjacency=_ADJACENCY.value,
        **others,
    )
    noise = {
        flag: flags.FLAGS[flag].value
        for flag in ('noise_multiplier', 'target_epsilon')
        if flag in flags.FLAGS and flags.FLAGS[flag].value is not None
    }
    with command_line.refusing_bad_values():
        if silent:
            if noise:
                raise command_line.UsageError(f'--{next(iter(noise))}: mechanism=none has no noise')
            return accounting.PrivacyPlan(noise_multiplier=0.0, **fields)
        if len(noise) == 2:
            raise command_line.UsageError('--target_epsilon: goes without --noise_multiplier')
        if 'target_epsilon' in noise:
            silent_plan = accounting.PrivacyPlan(noise_multiplier=0.0, **fields)
            return accounting.PrivacyPlan.calibrated(
                epsilon=noise['target_epsilon'],
                delta=_DELTA.value,
                accountant=accountant(silent_plan),
                **fields,
            )
        noise_multiplier = schema_flags.required(_NOISE_MULTIPLIER.name)
        return accounting.PrivacyPlan(noise_multiplier=noise_multiplier, **fields)


def accountant(plan: accounting.PrivacyPlan) -> str:
    """Value of --accountant; if it is not given, the best one where the plan has sampling."""
    if flags.FLAGS[_ACCOUNTANT.name].present or plan.sampling == 'none':
        return _ACCOUNTANT.value
    return 'best'


def _numbers(flag) -> list[float]:
    try:
        return [float(part) for part in flag.value]
    except ValueError:
        raise command_line.UsageError(
            f'--{flag.name}={",".join(flag.value)}: must be comma-separated numbers'
        ) from None


def _load(name: str) -> mechanisms.Mechanism:
    strategy = strategies.load(_STRATEGY.name, _STRATEGY.value)
    if strategy.name != name:
        raise command_line.UsageError(
            f'--strategy={_STRATEGY.value}: holds a {strategy.name}, not a {name} mechanism'
        )
    return strategy
