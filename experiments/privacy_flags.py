"""Flags of a privacy plan, and the plan that they make. No TensorFlow."""

import pathlib

from absl import flags

from dpfl import Participation, accounting, mechanisms
from experiments import command_line

_STRATEGIES = pathlib.Path(__file__).parents[1] / 'configs' / 'strategies'
_TREES = {'tree': mechanisms.BinaryTree, 'honaker_tree': mechanisms.HonakerTree}
MECHANISMS = ('gaussian', *_TREES, 'blt')

_ROUNDS = flags.DEFINE_integer('rounds', None, 'Number of rounds.')
_MIN_SEPARATION = flags.DEFINE_integer(
    'min_separation', 1,
    'A client that takes part in round i may do so again in round i + min_separation at the '
    'earliest; 1 allows every round. (MinS of tensorflow-privacy and of the papers is one less.)',
)
_MAX_PARTICIPATIONS = flags.DEFINE_integer(
    'max_participations', None,
    'Most rounds that a client takes part in; by default as many as rounds and separation allow.',
)
_STRATEGY = flags.DEFINE_string(
    'strategy', None,
    'Parameters of the mechanism: a name in configs/strategies, or a file that '
    'dpfl.mechanisms.save wrote. They are used for --rounds rounds.',
)
_BLT_DECAY = flags.DEFINE_list(
    'blt_decay', None, 'Buffer decays (theta) of a BLT, comma-separated.'
)
_BLT_SCALE = flags.DEFINE_list(
    'blt_scale', None, 'Output scales (omega) of a BLT, comma-separated.'
)
_TREE_RELEASED = flags.DEFINE_enum(
    'tree_released', 'nodes', mechanisms.tree.RELEASED,
    'What the sensitivity of a tree counts as released: all of its noised nodes, as the published '
    'accounting does, or the prefix sums, which is what is released.',
)
_NOISE_MULTIPLIER = flags.DEFINE_float(
    'noise_multiplier', None, 'Standard deviation of the noise z divided by the clip norm.'
)
_DELTA = flags.DEFINE_float('delta', 1e-10, 'Delta at which epsilon is given.')
_ACCOUNTANT = flags.DEFINE_enum(
    'accountant', 'pld', accounting.ACCOUNTANTS, 'How epsilon is computed.'
)
_ADJACENCY = flags.DEFINE_enum(
    'adjacency', 'zero_out', accounting.ADJACENCIES,
    'Neighbouring runs: one client zeroed out, or one client replaced by another.',
)


def required(name: str):
    """Value of a flag that has no default.

    Raises:
      UsageError: if it is not given.
    """
    value = flags.FLAGS[name].value
    if value is None:
        raise command_line.UsageError(f'--{name}: must be given')
    return value


def participation() -> Participation:
    """The schema of --rounds, --min_separation and --max_participations."""
    with command_line.refusing_bad_values():
        return Participation(required('rounds'), _MIN_SEPARATION.value, _MAX_PARTICIPATIONS.value)


def mechanism(name: str) -> mechanisms.Mechanism:
    """The mechanism `name` over --rounds rounds, with the parameters of the flags."""
    given = [flag.name for flag in (_STRATEGY, _BLT_DECAY, _BLT_SCALE) if flag.value]
    rounds = required('rounds')
    with command_line.refusing_bad_values():
        if given and (name == 'gaussian' or name in _TREES):
            raise command_line.UsageError(f'--{given[0]}: mechanism={name} has no parameters')
        if name == 'gaussian':
            return mechanisms.Identity(rounds)
        if name in _TREES:
            return _TREES[name](rounds, _TREE_RELEASED.value)
        if given == [_BLT_DECAY.name, _BLT_SCALE.name]:
            return mechanisms.Blt(rounds, _numbers(_BLT_DECAY), _numbers(_BLT_SCALE))
        if given != [_STRATEGY.name]:
            raise command_line.UsageError(
                f'--mechanism={name}: needs --strategy, or --blt_decay and --blt_scale'
            )
        return _load(name).with_rounds(rounds)


def plan(name: str, *, clip_norm: float, clients_per_round: int) -> accounting.PrivacyPlan:
    """The plan of the mechanism `name` and the other flags.

    `name` may be 'none': updates are clipped, but there is no noise and no guarantee. The noise is
    that of --noise_multiplier or, where the binary has that flag, what --target_epsilon needs.
    """
    silent = name == 'none'
    fields = dict(
        mechanism=mechanism('gaussian' if silent else name),
        participation=participation(),
        clip_norm=clip_norm,
        clients_per_round=clients_per_round,
        adjacency=_ADJACENCY.value,
    )
    noise = {flag: flags.FLAGS[flag].value for flag in ('noise_multiplier', 'target_epsilon')
             if flag in flags.FLAGS and flags.FLAGS[flag].value is not None}
    with command_line.refusing_bad_values():
        if silent:
            if noise:
                raise command_line.UsageError(f'--{next(iter(noise))}: mechanism=none has no noise')
            return accounting.PrivacyPlan(noise_multiplier=0.0, **fields)
        if len(noise) == 2:
            raise command_line.UsageError('--target_epsilon: goes without --noise_multiplier')
        if 'target_epsilon' in noise:
            return accounting.PrivacyPlan.calibrated(
                epsilon=noise['target_epsilon'], delta=_DELTA.value, accountant=_ACCOUNTANT.value,
                **fields,
            )
        return accounting.PrivacyPlan(noise_multiplier=required('noise_multiplier'), **fields)


def _numbers(flag) -> list[float]:
    try:
        return [float(part) for part in flag.value]
    except ValueError:
        raise command_line.UsageError(
            f'--{flag.name}={",".join(flag.value)}: must be comma-separated numbers'
        ) from None


def _load(name: str) -> mechanisms.Mechanism:
    value = _STRATEGY.value
    named = _STRATEGIES / f'{value}.npz'
    path = named if named.is_file() else pathlib.Path(value)
    if not path.is_file():
        known = ', '.join(sorted(file.stem for file in _STRATEGIES.glob('*.npz')))
        raise command_line.UsageError(f'--strategy={value}: must be a file or one of {known}')
    try:
        strategy = mechanisms.load(path)
    except ValueError as error:
        raise command_line.UsageError(f'--strategy={value}: {error}') from None
    if strategy.name != name:
        raise command_line.UsageError(
            f'--strategy={value}: holds a {strategy.name}, not a {name} mechanism'
        )
    return strategy
