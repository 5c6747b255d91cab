"""Targets: strategies, plans, logs, reports and run directories, on which a guarantee rests."""

import hashlib
import io
import json

import numpy as np

from dpfl import Participation, ParticipationLog, mechanisms
from dpfl.accounting.records import archive, cohorts, journal, verification
from dpfl.accounting.reports.report import PrivacyReport
from tests.attacks.hostile import archives, mutations
from tests.attacks.hostile.privacy_checks import check_mechanism, check_plan, true_epsilon
from tests.attacks.hostile.privacy_examples import arrays_of, examples, log, records
from tests.attacks.hostile.target import Target, require


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
    refusals = (ValueError, RecursionError)  # RecursionError comes from Python's own reader.

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


class Plan(Target):
    """`archive.read_plan` of `plan.json` and `strategy.npz`, with a right or wrong digest."""

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
    """Writes mutated JSON values to a path, or puts something else there."""
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
    """`ParticipationLog.load`, and the properties of the log."""

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
    """`PrivacyReport.from_json`. No report may promise more than its plan gives."""

    name = 'report'

    def __init__(self, folder):
        super().__init__(folder)
        self._reports = [
            json.loads(record.report(log() if i % 2 else None).to_json())
            for i, record in enumerate(records())
        ]
        refuted = ParticipationLog([[0, 1, 2]] * 5)
        (sampled,) = (each for each in records() if each.plan.sampling is not None)
        self._reports.append(json.loads(sampled.report(refuted).to_json()))
        self._reports.append(json.loads(records()[-1].report(log()).to_json()))

    def mutate(self, rng):
        path = self.fresh() / 'privacy_report.json'
        values = self._reports[rng.integers(len(self._reports))]
        if rng.integers(3) == 0:  # Changes only the promises of the report.
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
            # A log that keeps the plan must promise no more than the plan. One that breaks the
            # plan must say so.
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


def _journal(record: archive.PlanRecord) -> bytes:
    """The journal of a run with the cohorts of `log`."""
    events = journal_events(record.to_dict())
    text, head = b'', ''
    for event in events:
        line, head = journal.line(head, event)
        text += line
    return text


def journal_events(record: dict) -> list[journal.Event]:
    """The events of a run with the cohorts of `log`, whose loop is not dpfl's own."""
    events: list[journal.Event] = [
        journal.Planned(settings=None, files={}, date='2026-11-23', version='1', keys='c' * 64),
        journal.Built(record=record, configuration={}, data={}),
    ]
    for t in range(log().rounds):
        cohort = journal.cohort_digest(log().cohort(t))
        events += [
            journal.Began(round=t, cohort=cohort, model='a' * 64, noise=f'{t:064x}', data='d' * 64),
            journal.Released(round=t, model='a' * 64, state='b' * 64, metrics={'loss': 2.5}),
        ]
    return events


class RunDirectory(Target):
    """`verification.verify` of a finished run with one mutated file, its digest right or wrong."""

    name = 'run directory'

    def __init__(self, folder):
        super().__init__(folder)
        self._runs = []
        for i, record in enumerate(records()[:8]):
            run = folder / f'run{i}'
            run.mkdir(exist_ok=True)
            mechanisms.save(record.plan.mechanism, run / archive.STRATEGY)
            (run / archive.LEDGER).write_bytes(_journal(record))
            (run / cohorts.NAME).write_bytes(
                b''.join(cohorts.record(t, log().cohort(t)) for t in range(log().rounds))
            )
            found = archive.Records.read(run)
            for name, data in archive.tables(found).items():
                (run / name).write_bytes(data)
            for name, text in archive.pages(run, found.report()).items():
                (run / name).write_text(text)
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
