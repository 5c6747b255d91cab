"""Strategies, plans, logs, reports and run directories: what a guarantee is computed from."""

import hashlib
import io
import json
import math

import numpy as np

from benchmarks.attacks.hostile import archives, mutations, oracle
from benchmarks.attacks.hostile.target import Target, require
from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.accounting.adaptive_clip import AdaptiveClip
from dpfl.accounting.records import archive, ledger_lines, verification
from dpfl.accounting.reports.report import PrivacyReport

# Of what the oracle computes, for factors that are neither tiny nor huge.
_TOLERANCE = 1e-9


def examples() -> list[mechanisms.Mechanism]:
    """One of every kind, small enough for the oracle, and a large one."""
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


def check_mechanism(mechanism: mechanisms.Mechanism, rng) -> None:
    """Round trip, digest, and sensitivities of small ones against the oracle."""
    require(mechanisms.from_dict(mechanism.to_dict()).digest() == mechanism.digest(), 'round trip')
    rounds = mechanism.rounds
    if rounds > oracle.MOST_ROUNDS:
        return
    separation, most = int(rng.integers(1, 5)), int(rng.integers(1, 8))
    stops = rounds if rng.integers(2) else int(rng.integers(1, rounds + 1))
    if mechanism.name == 'full_honaker_tree' or mechanism.name == 'restarted':
        stops = rounds
    bound = mechanism.sensitivity_bound(Participation(stops, separation, most))
    require_sensitivity(mechanism, stops, separation, most, bound.squared)


def require_sensitivity(mechanism, rounds: int, separation: int, most: int, squared: float) -> None:
    """Raises WrongResultError if a squared sensitivity is below the truth."""
    with np.errstate(all='ignore'):
        mechanism = mechanism.with_rounds(rounds)
        values = mechanism.to_dict()
        if values.get('released') == 'nodes':
            matrix = oracle.nodes(rounds)
        else:
            matrix = oracle.strategy_matrix(values)
        if matrix is None:
            matrix = mechanism.released_matrix()
        truth = oracle.squared_sensitivity(matrix, rounds, separation, most)
    require(
        squared >= truth * (1 - _TOLERANCE) or truth > 1e280,
        f'{values}: squared sensitivity {squared} for b={separation}, k={most}, n={rounds}: '
        f'the truth is at least {truth}',
    )


def true_epsilon(plan: accounting.PrivacyPlan, delta: float) -> float | None:
    """The least epsilon that a plan can have, by the oracle; None where it has no answer."""
    rounds = plan.participation.rounds
    if plan.sampling != 'none' or rounds > oracle.MOST_ROUNDS or not plan.noise_multiplier:
        return None
    mechanism = plan.mechanism
    if mechanism.rounds > oracle.MOST_ROUNDS:
        mechanism = mechanism.with_rounds(rounds)
    matrix = oracle.strategy_matrix(mechanism.to_dict())
    if matrix is None:
        matrix = mechanism.strategy_matrix()
    norm = 1.0
    if plan.discretization is not None:
        norm = plan.discretization.inflated_norm / plan.clip_norm
    factor = norm * (2 if plan.adjacency == 'replace_one' else 1)
    squared = oracle.squared_sensitivity(
        matrix[:rounds, :rounds],
        rounds,
        plan.participation.min_separation,
        plan.participation.count,
    )
    mu = factor * math.sqrt(squared) / plan.noise_multiplier
    # Where doubles cannot hold exp(epsilon) there is nothing to compare.
    return oracle.epsilon(mu, delta) if 1e-6 < mu < 20 and delta > 1e-200 else None


def check_plan(plan: accounting.PrivacyPlan, deltas) -> None:
    """Raises WrongResultError if a plan has less epsilon than it is true."""
    truth = true_epsilon(plan, deltas[0])
    if truth is not None:
        for accountant in ('analytic_gaussian', 'rdp'):
            stated = plan.epsilon(deltas[0], accountant)
            require(stated >= truth * (1 - 1e-6) - 1e-12, f'{accountant}: {stated} < {truth}')


class Strategy(Target):
    """`mechanisms.load`."""

    name = 'strategy'

    def __init__(self, folder):
        super().__init__(folder)
        self._arrays = [arrays_of(mechanism) for mechanism in examples()]

    def mutate(self, rng):
        path = self.fresh() / 'strategy.npz'
        if rng.random() < self.special:
            mutations.special(rng, path)
            return path
        data = self._arrays[rng.integers(len(self._arrays))]
        if rng.integers(5) == 0:
            path.write_bytes(
                mutations.of_bytes(
                    rng,
                    archives.written(
                        rng, [(f'{name}.npy', archives.npy(array)) for name, array in data.items()]
                    ),
                )
            )
        else:
            path.write_bytes(archives.of_arrays(rng, data))
        self._rng = rng
        return path

    def read(self, path):
        return mechanisms.load(path)

    def check(self, value):
        check_mechanism(value, self._rng)


class StrategyValues(Target):
    """`mechanisms.from_dict` of any JSON document that Python reads."""

    name = 'strategy values'
    refusals = (ValueError, RecursionError)  # RecursionError is that of Python's own reader.

    def __init__(self, folder):
        super().__init__(folder)
        self._values = [mechanism.to_dict() for mechanism in examples()]

    def mutate(self, rng):
        path = self.fresh() / 'values.json'
        path.write_text(mutations.of_json(rng, self._values[rng.integers(len(self._values))]))
        self._rng = rng
        return path

    def read(self, path):
        return mechanisms.from_dict(json.loads(path.read_text()))

    def check(self, value):
        check_mechanism(value, self._rng)


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
        accountant = 'rdp' if plan.sampling != 'none' else 'analytic_gaussian'
        return archive.PlanRecord(plan, (1e-6, 1e-9), accountant, False)

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
            sampling='poisson',
            population=100,
        )
    )
    return made


def log() -> ParticipationLog:
    """Six rounds of three clients out of nine, every third round."""
    return ParticipationLog([[0, 1, 2], [3, 4, 5], [6, 7, 8]] * 2)


class Plan(Target):
    """`archive.read_plan`: `plan.json` and `strategy.npz`, with the digest put right or not."""

    name = 'plan'

    def __init__(self, folder):
        super().__init__(folder)
        self._records = records()

    def mutate(self, rng):
        case = self.fresh()
        record = self._records[rng.integers(len(self._records))]
        values = json.loads(record.to_json())
        strategy = case / archive.STRATEGY
        if rng.integers(4) == 0:
            strategy.write_bytes(archives.of_arrays(rng, arrays_of(record.plan.mechanism)))
            try:
                values['mechanism_digest'] = mechanisms.load(strategy).digest()
            except ValueError:
                pass
        else:
            mechanisms.save(record.plan.mechanism, strategy)
        spoil_text(rng, case / archive.PLAN, values, self.special)
        return case

    def read(self, path):
        return archive.read_plan(path)

    def check(self, value):
        check_plan(value.plan, value.deltas)
        value.to_json()


def spoil_text(rng, path, values, special: float) -> None:
    """Writes JSON values with changes to a path, or something else."""
    kind = rng.random()
    if kind < special:
        mutations.special(rng, path)
    elif kind < 0.8:
        path.write_text(mutations.of_json(rng, values), errors='surrogatepass')
    elif kind < 0.85:
        path.write_text(json.dumps(values))
    else:
        path.write_bytes(mutations.of_bytes(rng, json.dumps(values, indent=2).encode()))


class Log(Target):
    """`ParticipationLog.load`, and what follows from it."""

    name = 'log'

    def mutate(self, rng):
        path = self.fresh() / 'participation.npz'
        if rng.random() < self.special:
            mutations.special(rng, path)
            return path
        offsets = np.cumsum([0, 3, 3, 0, 2, 3])
        clients = np.sort(rng.integers(0, 9, (4, 3)), axis=1).reshape(-1)[:11]
        clients[6:8].sort()
        clients[8:].sort()
        kind = np.int32 if rng.integers(2) else np.int64
        arrays = {'clients': clients.astype(kind), 'offsets': offsets.astype(np.int64)}
        if rng.integers(5):
            path.write_bytes(archives.of_arrays(rng, arrays))
        else:
            members = [(f'{name}.npy', archives.npy(array)) for name, array in arrays.items()]
            path.write_bytes(mutations.of_bytes(rng, archives.written(rng, members)))
        return path

    def read(self, path):
        return ParticipationLog.load(path)

    def check(self, value):
        if not value.rounds:
            return
        rounds: dict[int, list[int]] = {}
        for t in range(value.rounds):
            for client in value.cohort(t).tolist():
                rounds.setdefault(client, []).append(t)
        gaps = [
            j - i for each in rounds.values() for i, j in zip(each, each[1:], strict=False) if j > i
        ]
        seen = value.observed()
        require(seen.min_separation == min(gaps, default=value.rounds), 'separation')
        require(seen.max_participations == max(map(len, rounds.values()), default=1), 'count')
        require(value.statistics().clients == len(rounds), 'clients')


class Report(Target):
    """`PrivacyReport.from_json`: no report promises more than its plan gives."""

    name = 'report'

    def __init__(self, folder):
        super().__init__(folder)
        self._reports = [
            json.loads(record.report(log() if i % 2 else None).to_json())
            for i, record in enumerate(records())
        ]

    def mutate(self, rng):
        path = self.fresh() / 'privacy_report.json'
        values = self._reports[rng.integers(len(self._reports))]
        if rng.integers(3) == 0:  # Only what the report promises.
            values = json.loads(json.dumps(values))
            promise = values[('plan_guarantee', 'observed')[rng.integers(2)]]
            for part in (promise, promise and promise.get('guarantee')):
                if part and 'epsilons' in part:
                    name = str(rng.choice(('epsilons', 'mu', 'rho', 'sensitivity')))
                    part[name] = [1e-3, 1e-3] if name == 'epsilons' else 1e-3
            path.write_text(json.dumps(values))
        else:
            spoil_text(rng, path, values, 0)
        return path

    def read(self, path):
        return PrivacyReport.from_json(path.read_text(errors='replace'))

    def check(self, value):
        truth = true_epsilon(value.plan, value.deltas[0])
        stated = value.plan_guarantee.epsilons[0]
        require(
            truth is None or stated is None or stated >= truth * (1 - 2e-6) - 1e-12,
            f'epsilon {stated} < {truth}',
        )
        if value.observed and stated is not None and truth is not None:
            # A log that keeps the plan gives no more than the plan; one that breaks it says so.
            held = value.guarantee.epsilons[0]
            schema = Participation(
                value.guarantee.rounds,
                value.guarantee.min_separation,
                value.guarantee.max_participations,
            )
            least = true_epsilon(value.plan.with_participation(schema), value.deltas[0])
            require(held is None or least is None or held >= least * (1 - 2e-6) - 1e-12, 'log')
        value.to_json()
        value.render()
        value.dp_event()


def _ledger(record: archive.PlanRecord) -> bytes:
    """The ledger of a run with the cohorts of `log`."""
    text, chain = ledger_lines.first_line(record.digest())
    for t in range(log().rounds):
        cohort = ledger_lines.cohort_digest(log().cohort(t))
        entry = ledger_lines.Entry(cohort, 'm' * 64, f'{t:064}', 'd' * 64)
        line, chain = ledger_lines.line(chain, t, entry)
        text += line
    return text


class RunDirectory(Target):
    """`verification.verify`: a finished run with one spoilt file, its digest put right or not."""

    name = 'run directory'

    def __init__(self, folder):
        super().__init__(folder)
        self._runs = []
        for i, record in enumerate(records()[:8]):
            run = folder / f'run{i}'
            run.mkdir(exist_ok=True)
            (run / archive.PLAN).write_text(record.to_json())
            mechanisms.save(record.plan.mechanism, run / archive.STRATEGY)
            log().save(run / archive.LOG)
            (run / archive.LEDGER).write_bytes(_ledger(record))
            report = record.report(log())
            (run / archive.REPORT).write_text(report.to_json())
            (run / archive.PAGE).write_text(report.render())
            self._runs.append({path.name: path.read_bytes() for path in run.iterdir()})

    def mutate(self, rng):
        case = self.fresh()
        run = dict(self._runs[rng.integers(len(self._runs))])
        name = list(run)[rng.integers(len(run))]
        special = rng.random() < 0.05
        if not special:
            run[name] = self._spoilt(rng, name, run[name])
        for other, data in run.items():
            if not (special and other == name):
                (case / other).write_bytes(data)
        if special:
            mutations.special(rng, case / name, may_be_large=True)
        if rng.integers(3):
            sums = ''.join(
                f'{hashlib.sha256(data).hexdigest()}  {other}\n'
                for other, data in sorted(run.items())
            ).encode()
        else:
            sums = mutations.of_bytes(
                rng,
                ''.join(
                    f'{hashlib.sha256(data).hexdigest()}  {other}\n' for other, data in run.items()
                ).encode(),
            )
        (case / archive.SUMS).write_bytes(sums)
        return case

    def _spoilt(self, rng, name, data):
        if name.endswith('.json') and rng.integers(4):
            return mutations.of_json(rng, json.loads(data)).encode('utf-8', 'surrogatepass')
        if name.endswith('.npz') and rng.integers(4):
            with np.load(io.BytesIO(data)) as arrays:
                return archives.of_arrays(rng, dict(arrays))
        return mutations.of_bytes(rng, data)

    def read(self, path):
        return verification.verify(path)

    def check(self, value):
        for difference in value.differences:
            require(len(difference.splitlines()) == 1, f'several lines: {difference!r}')
        if value.differences:
            return
        report = value.report
        least = true_epsilon(report.plan, report.deltas[0])
        stated = report.plan_guarantee.epsilons[0]
        require(
            stated is None or least is None or stated >= least * (1 - 1e-6) - 1e-12,
            f'epsilon {stated} < {least}',
        )


TARGETS = (Strategy, StrategyValues, Plan, Log, Report, RunDirectory)
