"""One mechanism for several participation schemas: a table of what it loses under each."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

from dpfl import Participation, ParticipationLog, mechanisms
from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError
from dpfl.mechanisms import registry
from dpfl.mechanisms.optimize.proven_loss import loss_of
from dpfl.mechanisms.optimize.relative_loss import CRITERIA
from dpfl.participation import observed_schemas
from dpfl.planning import optimization
from dpfl.simulation.training.privacy_config import ParticipationConfig
from dpfl.simulation.training.sampling_config import required


@dataclasses.dataclass(frozen=True, kw_only=True)
class RobustConfig(Settings):
    """Several schemas, one of which the run will have."""

    separations: tuple[int, ...] | None = setting(
        None,
        'Optimise one blt or scaled_blt for all of these values of --min_separation, '
        'comma-separated.',
    )
    weights: tuple[float, ...] | None = setting(
        None, 'How likely each of --separations is, comma-separated; by default equally.'
    )
    logs: tuple[str, ...] | None = setting(
        None,
        'Optimise one blt or scaled_blt for the schemas of these participation logs (.npz), '
        'comma-separated.',
    )
    criterion: str = setting(
        'expected',
        'What --separations and --logs minimise: the expected or the worst loss, relative to that '
        'of the BLT that is optimised for the schema.',
        choices=CRITERIA,
    )

    def check(self) -> None:
        """Checks that the schemas are given in one way only, and weights only for separations."""
        if self.separations and self.logs:
            raise ArgumentError('logs', ','.join(self.logs), 'cannot be combined with separations')
        if self.weights is not None and not self.separations:
            raise ArgumentError('weights', ','.join(map(str, self.weights)), 'needs separations')

    @property
    def is_wanted(self) -> bool:
        """Whether there are several schemas."""
        return bool(self.separations or self.logs)

    def schemas(
        self, common: ParticipationConfig
    ) -> tuple[Sequence[Participation], Sequence[float] | None]:
        """The schemas, and how likely each is, or None for equally likely.

        Args:
          common: what all `separations` have in common.

        Raises:
          ArgumentError: if the number of rounds is missing, or a schema or a log is not valid.
        """
        if self.logs:
            return observed_schemas([ParticipationLog.load(path) for path in self.logs])
        rounds, most = required(common, 'rounds'), common.max_participations
        each = tuple(Participation(rounds, one, most) for one in self.separations or ())
        return each, self.weights


def optimize(
    name: str,
    config: RobustConfig,
    common: ParticipationConfig,
    output: pathlib.Path,
    *,
    buffers: int = 4,
    loss: str | None = None,
) -> list[dict[str, Any]]:
    """Optimises a mechanism for several schemas and saves it; returns what it loses under each.

    Args:
      name: of the mechanism.
      config: the schemas, and what is minimised.
      common: what all schemas with given separations have in common.
      output: file to save the mechanism in (.npz).
      buffers: number of buffers.
      loss: 'max' or 'rms'; None for 'max'.

    Returns:
      A row for each schema, with the loss of the mechanism, and of the BLT optimised for it with as
      many buffers.

    Raises:
      ArgumentError: if a value is not allowed, or the file cannot be written.
    """
    if name not in registry.ROBUST:
        names = ' or '.join(registry.ROBUST)
        raise ArgumentError('mechanism', name, f'must be {names} with several schemas')
    optimization.check_output(output)
    schemas, weights = config.schemas(common)
    loss = 'max' if loss is None else loss
    optimizer = registry.ENTRIES[name].optimizer
    assert optimizer is not None and optimizer.robust is not None
    mechanism = optimizer.robust(
        schemas, weights, buffers, loss=loss, criterion=config.criterion, progress=True
    )
    relative = mechanisms.relative_losses(mechanism, schemas, buffers, loss).tolist()
    optimization.save(mechanism, output)
    rows = []
    for schema, ratio in zip(schemas, relative, strict=True):
        value = loss_of(mechanism, schema, loss)
        rows.append(
            {
                'rounds': schema.rounds,
                'min_separation': schema.min_separation,
                'max_participations': schema.count,
                f'{loss}_loss': value,
                f'blt_{loss}_loss': value / ratio,
                'relative_loss': ratio,
            }
        )
    return rows
