"""Flags of a participation schema, and the schema that they make. No TensorFlow."""

from absl import flags

from dpfl import Participation
from experiments.command import command_line

_ROUNDS = flags.DEFINE_integer('rounds', None, 'Number of rounds.')
_MIN_SEPARATION = flags.DEFINE_integer(
    'min_separation',
    1,
    'A client that takes part in round i may do so again in round i + min_separation at the '
    'earliest; 1 allows every round. (MinS of tensorflow-privacy and of the papers is one less.)',
)
_MAX_PARTICIPATIONS = flags.DEFINE_integer(
    'max_participations',
    None,
    'Most rounds that a client takes part in; by default as many as rounds and separation allow.',
)


def required(name: str):
    """Value of a flag that has no default.

    Raises:
      UsageError: if it is not given, or empty.
    """
    value = flags.FLAGS[name].value
    if value in (None, '', []):
        raise command_line.UsageError(f'--{name}: must be given')
    return value


def participation() -> Participation:
    """The schema of --rounds, --min_separation and --max_participations.

    Raises:
      UsageError: if there is none, or a limit can never be met: most likely a mistyped flag.
    """
    with command_line.refusing_bad_values():
        schema = Participation(required('rounds'), _MIN_SEPARATION.value, _MAX_PARTICIPATIONS.value)
    if schema.min_separation > schema.rounds:
        raise command_line.UsageError(
            f'--min_separation={schema.min_separation}: must be <= {schema.rounds}, the rounds'
        )
    if schema.max_participations is not None and schema.max_participations > schema.count:
        raise command_line.UsageError(
            f'--max_participations={schema.max_participations}: must be <= {schema.count}, what '
            f'--rounds={schema.rounds} and --min_separation={schema.min_separation} allow'
        )
    return schema
