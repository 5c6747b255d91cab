"""Mechanisms, plans and a participation log for the targets of `privacy_targets`."""

import dataclasses
import io

import numpy as np

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.accounting.clipping import AdaptiveClip
from dpfl.accounting.records import archive
from dpfl.accounting.reports import inputs


def examples() -> list[mechanisms.Mechanism]:
    """A mechanism of every kind, small enough for the oracle, and a large one."""
    lag = np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
    table = np.tril(np.exp(-lag))
    return [
        mechanisms.Identity(6),
        mechanisms.BinaryTree(6),
        mechanisms.BinaryTree(7, 'prefix_sums'),
        mechanisms.HonakerTree(5),
        mechanisms.FullHonakerTree(6),
        mechanisms.Banded.from_matrix(table, 3),
        mechanisms.Banded.from_matrix(table * (-1.0) ** lag, 2),
        mechanisms.BandedInverse.square_root(6, 3),
        mechanisms.BandedInverse(6, [1, -0.9, 0.6]),
        mechanisms.BandedToeplitz(6, [1.0, -0.5, 0.7]),
        mechanisms.BandedToeplitz.fichtenberger(7, 3),
        mechanisms.Blt(6, [0.9, 0.4], [0.2, 0.3]),
        mechanisms.Blt(5, [0.8, 0.3], [0.2, -0.9]),
        mechanisms.Restarted(mechanisms.BinaryTree(6), (2, 4), 6),
        mechanisms.Restarted(mechanisms.Blt(6, [0.9], [0.4]), (3,), 6),
        mechanisms.Restarted(mechanisms.BandedToeplitz(4, [1.0, 0.5]), (3,), 6),
        mechanisms.Blt(2000, [0.99, 0.7], [0.1, 0.2]),
    ]


def arrays_of(mechanism: mechanisms.Mechanism) -> dict[str, np.ndarray]:
    """The arrays in the file of a mechanism."""
    file = io.BytesIO()
    mechanisms.save(mechanism, file)
    file.seek(0)
    with np.load(file) as data:
        return dict(data)


def records() -> list[archive.PlanRecord]:
    """Plans of all kinds, small enough for the oracle."""

    def record(mechanism, schema=None, **fields):
        schema = schema or Participation(mechanism.rounds, 2, 3)
        plan = accounting.PrivacyPlan(
            **(
                dict(
                    mechanism=mechanism,
                    participation=schema,
                    clip_norm=1.0,
                    noise_multiplier=3.0,
                    clients_per_round=3,
                )
                | fields
            )
        )
        accountant = 'rdp' if plan.sampling is not None else 'analytic_gaussian'
        # The noise of the first round in the journals of `privacy_targets`.
        key = inputs.noise_key_digest('0' * 64)
        return archive.PlanRecord(plan, (1e-6, 1e-9), accountant, False, noise_key_digest=key)

    made = [record(mechanism) for mechanism in examples()]
    made.append(record(mechanisms.Identity(6), adjacency='replace_one'))
    made.append(
        record(mechanisms.Restarted(mechanisms.BinaryTree(6), (3,), 6), clip_schedule=((3, 0.5),))
    )
    made.append(record(mechanisms.Identity(6), adaptive_clip=AdaptiveClip(count_stddev=20.0)))
    made.append(
        record(
            mechanisms.Identity(6),
            discretization=mechanisms.discretization.Discretization(
                scale=100.0, dimension=1000, clip_norm=1.0
            ),
        )
    )
    made.append(
        record(
            mechanisms.Identity(6),
            Participation(6),
            sampling=accounting.Poisson(population=100),
        )
    )
    steps = (inputs.Extension(2, 3, 5), inputs.Extension(5, 5, 6))
    made.append(dataclasses.replace(made[1], extensions=steps, stop_at_accuracy=0.5))
    return made


def log() -> ParticipationLog:
    """Six rounds of three clients out of nine, every third round."""
    return ParticipationLog([[0, 1, 2], [3, 4, 5], [6, 7, 8]] * 2)
