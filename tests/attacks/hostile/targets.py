"""Targets: strategies, plans, logs, reports and runs, on which a guarantee rests, and texts."""

import dataclasses
import hashlib
import io
import json
import pathlib
import tempfile

import numpy as np

from dpfl import Participation, ParticipationLog, accounting, errors, mechanisms
from dpfl.accounting import gaussian
from dpfl.accounting.records import archive, journal, verification
from dpfl.accounting.reports import inputs
from dpfl.accounting.reports.report import PrivacyReport
from dpfl.simulation import checkpoint, run_journal
from dpfl.tasks.text import client_texts, vocabulary
from tests import mechanism_cases, oracles
from tests.accounting import archives, plans
from tests.attacks.hostile.campaign import Target, require

_MOST_ROUNDS = 7  # Of what is compared with all patterns.


def _mechanisms() -> list[mechanisms.Mechanism]:
    small = [make(6) for make in mechanism_cases.FACTORIES.values()]
    return [*small, mechanisms.Blt(2000, [0.99, 0.7], [0.1, 0.2])]


def _records() -> list[archive.PlanRecord]:
    """Plans of every mechanism and with every part, small enough for the oracle."""
    identity = dict(mechanism=mechanisms.Identity(6))
    restarted = mechanisms.Restarted(mechanisms.BinaryTree(6), (3,), 6)
    parts = (
        identity | dict(adjacency='replace_one'),
        dict(mechanism=restarted, clip_schedule=((3, 0.5),)),
        identity | dict(adaptive_clip=accounting.AdaptiveClip(count_stddev=20.0)),
        identity | dict(discretization=mechanisms.Discretization(100.0, 1000, 0.5)),
        identity | dict(participation=Participation(6), sampling='poisson', population=100),
    )
    made = [archives.make_record(**fields) for fields in parts]
    steps = (inputs.Extension(2, 3, 5), inputs.Extension(5, 5, 6))
    made.append(dataclasses.replace(made[0], extensions=steps, stop_at_accuracy=0.5))
    return made + [archives.make_record(mechanism=mechanism) for mechanism in _mechanisms()]


def _strategy_file(mechanism: mechanisms.Mechanism) -> bytes:
    file = io.BytesIO()
    mechanisms.save(mechanism, file)
    return file.getvalue()


def check_mechanism(mechanism: mechanisms.Mechanism, rng) -> None:
    """Checks round trip and digest, and the sensitivity of a small mechanism."""
    require(mechanisms.from_dict(mechanism.to_dict()).digest() == mechanism.digest(), 'round trip')
    if mechanism.rounds <= _MOST_ROUNDS:
        schema = Participation(mechanism.rounds, int(rng.integers(1, 5)), int(rng.integers(1, 8)))
        squared = mechanism.sensitivity_bound(schema).squared
        with np.errstate(all='ignore'):
            truth = oracles.squared_sensitivity(mechanism.released_matrix(), schema)
        is_possible = squared >= truth * (1 - 1e-9) or truth > 1e280
        require(is_possible, f'{squared} for {truth} of {schema} and {mechanism.to_dict()}')


def _require_honest(plan: accounting.PrivacyPlan, delta: float, stated: float | None) -> None:
    """Raises WrongResultError if an epsilon of a plan is below the true one."""
    schema = plan.participation
    is_small = max(plan.mechanism.rounds, schema.rounds) <= _MOST_ROUNDS
    if stated is None or plan.sampling or not plan.noise_multiplier or not is_small:
        return
    matrix = plan.mechanism.strategy_matrix()[: schema.rounds, : schema.rounds]
    factor = 2.0 if plan.adjacency == 'replace_one' else 1.0
    if plan.discretization is not None:
        factor *= plan.discretization.inflated_norm / plan.clip_norm
    mu = factor * oracles.squared_sensitivity(matrix, schema) ** 0.5 / plan.noise_multiplier
    # If doubles cannot hold exp(epsilon), there is nothing to compare.
    if 1e-6 < mu < 20 and delta > 1e-200:
        truth = gaussian.exact_epsilon(mu, delta)
        require(stated >= truth * (1 - 2e-6) - 1e-12, f'epsilon {stated} < {truth}')


def strategy() -> Target:
    examples = [{'strategy.npz': _strategy_file(mechanism)} for mechanism in _mechanisms()]
    return Target(
        examples, lambda folder: mechanisms.load(folder / 'strategy.npz'), check=check_mechanism
    )


def strategy_values() -> Target:
    def read(folder):
        return mechanisms.from_dict(json.loads((folder / 'values.json').read_text()))

    examples = [{'values.json': json.dumps(each.to_dict()).encode()} for each in _mechanisms()]
    # RecursionError comes from Python's own reader.
    return Target(examples, read, (ValueError, RecursionError), check_mechanism)


def plan() -> Target:
    def check(record, rng):
        for accountant in ('analytic_gaussian', 'rdp'):
            delta = record.deltas[0]
            _require_honest(record.plan, delta, record.plan.epsilon(delta, accountant))
        record.to_json()

    examples = [
        {
            archive.PLAN: record.to_json().encode(),
            archive.STRATEGY: _strategy_file(record.plan.mechanism),
        }
        for record in _records()
    ]
    return Target(examples, archive.read_plan, check=check)


def log() -> Target:
    def check(found, rng):
        if found.rounds:
            rounds: dict[int, list[int]] = {}
            for t in range(found.rounds):
                for client in found.cohort(t).tolist():
                    rounds.setdefault(client, []).append(t)
            seen = [j - i for each in rounds.values() for i, j in zip(each, each[1:], strict=False)]
            gaps, most = [gap for gap in seen if gap], max(map(len, rounds.values()), default=1)
            observed = found.observed()
            require(observed.min_separation == min(gaps, default=found.rounds), 'separation')
            require(observed.max_participations == most, 'count')
            require(found.statistics().clients == len(rounds), 'clients')

    examples = []
    for cohorts in ([[0, 1, 2], [3, 4, 7], [], [0, 8], [1, 2, 3]], [[2**40], [1]] * 3):
        file = io.BytesIO()
        ParticipationLog(cohorts).save(file)
        examples.append({archive.LOG: file.getvalue()})
    return Target(examples, lambda folder: ParticipationLog.load(folder / archive.LOG), check=check)


def _check_report(report: PrivacyReport) -> None:
    """No report promises more than its plan gives, nor for what a log shows."""
    delta = report.deltas[0]
    _require_honest(report.plan, delta, report.plan_guarantee.epsilons[0])
    if report.observed:
        held = report.guarantee
        schema = Participation(held.rounds, held.min_separation, held.max_participations)
        _require_honest(report.plan.with_participation(schema), delta, held.epsilons[0])
    report.to_json()
    report.render()
    report.dp_event()


def report() -> Target:
    def read(folder):
        return PrivacyReport.from_json((folder / archive.REPORT).read_text(errors='replace'))

    made = [record.report(archives.LOG if i % 2 else None) for i, record in enumerate(_records())]
    made.append(plans.report(plans.sampled('poisson'), [1e-3], [[0, 1, 2]] * 5, 'rdp'))
    examples = [{archive.REPORT: each.to_json().encode()} for each in made]
    return Target(examples, read, check=lambda found, rng: _check_report(found))


def run_directory() -> Target:
    """A finished run with one other file, its digest right or, as the list's own change, wrong."""

    def seal(parts):
        if parts[archive.SUMS] in lists:
            listed = sorted(parts.keys() - {archive.SUMS})
            sums = (f'{hashlib.sha256(parts[name]).hexdigest()}  {name}\n' for name in listed)
            parts[archive.SUMS] = ''.join(sums).encode()
        return parts

    def check(found, rng):
        for difference in found.differences:
            require(len(difference.splitlines()) == 1, f'several lines: {difference!r}')
        if not found.differences:
            _check_report(found.report)

    examples = []
    for record in _records()[:9]:
        with tempfile.TemporaryDirectory() as folder:
            run = archives.write(pathlib.Path(folder, 'run'), record)
            files = (path for path in sorted(run.rglob('*')) if path.is_file())
            found = {path.relative_to(run).as_posix(): path.read_bytes() for path in files}
            examples.append({name: found[name] for name in found if 'checkpoints' not in name})
    lists = {example[archive.SUMS] for example in examples}
    return Target(examples, verification.verify, check=check, seal=seal)


def checkpoint_file() -> Target:
    def seal(parts):
        data = b'\n'.join([parts['first'], parts['header.json'], b''])
        data += b''.join(parts[name] for name in parts if name.endswith('.npy'))
        return {'1.checkpoint': data + hashlib.sha256(data).digest()}

    def check(found, rng):
        require(found.rounds >= 0 and isinstance(found.head, str), 'header')
        found.write(io.BytesIO())

    file = io.BytesIO()
    state = [np.arange(6, dtype=np.float32).reshape(2, 3), b'key', np.int32(3)]
    checkpoint.Checkpoint(rounds=3, head='cd' * 32, state=state).write(file)
    first, header, rest = file.getvalue()[:-32].split(b'\n', 2)
    arrays = rest.split(np.lib.format.MAGIC_PREFIX)[1:]
    example = {'first': first, 'header.json': header}
    example |= {f'{i}.npy': np.lib.format.MAGIC_PREFIX + each for i, each in enumerate(arrays)}
    return Target(
        [example],
        lambda folder: checkpoint.Checkpoint.read(folder / '1.checkpoint'),
        (errors.RunError,),
        check,
        seal,
    )


def chained(lines) -> bytes:
    """A journal of these lines, whose chain is right."""
    chain, data = hashlib.sha256(b'dpfl journal').hexdigest(), b''
    for line in lines:
        chain = hashlib.sha256(chain.encode() + line).hexdigest()
        data += line[:-1] + f', "chain": "{chain}"}}\n'.encode()
    return data


def journal_file() -> Target:
    def seal(parts):
        return {archive.LEDGER: chained(part.replace(b'\n', b' ') for part in parts.values())}

    def read(folder):
        ours = run_journal.RunJournal(folder)
        return ours, journal.parse((folder / archive.LEDGER).read_bytes())

    def check(found, rng):
        ours, written = found
        require(ours.state.begun == written.state.begun, 'rounds')
        require(journal.parse(archives.encoded(written.events)).chain == written.chain, 'chain')
        try:
            ours.begin(archives.began(ours.state.begun), None)
        except errors.RunError:
            pass

    events = [archives.PLANNED, archives.built({}), *archives.rounds(archives.LOG)]
    values = [event.to_dict() for event in events]
    values[0] = {'format': journal.FORMAT, **values[0]}
    example = {f'{i}.json': json.dumps(each).encode() for i, each in enumerate(values)}
    return Target([example], read, (errors.RunError,), check, seal)


def words() -> Target:
    def check(found, rng):
        require(len(set(found.words)) == len(found.words), 'words')
        found.digest()

    def read(folder):
        path = folder / 'words.txt'
        vocabulary.count_public_text(path, 10**9)
        return vocabulary.load(path, 5 if b'word2' in path.read_bytes() else None)

    text = ''.join(f'word{i} {1000 - i}\n' for i in range(30))
    return Target([{'words.txt': text.encode()}], read, check=check)


def texts() -> Target:
    """Clients with their texts in JSON lines, CSV and Parquet, whose columns may have any type."""
    import pyarrow
    from pyarrow import parquet

    def seal(parts):
        if '0.json' in parts:
            lines = (part.replace(b'\n', b' ') for part in parts.values())
            return {'texts.jsonl': b'\n'.join(lines)}
        return parts

    def read(folder):
        (path,) = folder.iterdir()
        data = client_texts.open_user_text(path, 'user', 'text', 0.3)
        json.dumps(data.description)
        for part in (data.training, data.heldout):
            for client in range(part.count):
                list(part.sentences(client))

    rows = [(f'u{i % 5}', f'Some words of user {i}. And more!', i) for i in range(12)]
    csv = ''.join(f'{user},"{text}",{n}\n' for user, text, n in [('user', 'text', 'n'), *rows])
    values = [dict(zip(('user', 'text', 'n'), row, strict=True)) for row in rows]
    examples = [
        {f'{i}.json': json.dumps(row).encode() for i, row in enumerate(values)},
        {'texts.csv': csv.encode()},
    ]
    users, said, _ = zip(*rows, strict=True)
    for column in (users, [2.5] * 12, pyarrow.array([2**62] * 12).cast(pyarrow.timestamp('ns'))):
        for pair in ((column, said), (users, column)):
            file = io.BytesIO()
            table = pyarrow.table(dict(zip(('user', 'text'), pair, strict=True)))
            parquet.write_table(table, file)
            examples.append({'texts.parquet': file.getvalue()})
    return Target(examples, read, (ValueError, errors.DataError), seal=seal)


# Read in milliseconds.
FAST = (
    *(strategy, strategy_values, plan, log, report),
    *(run_directory, checkpoint_file, journal_file, words),
)
