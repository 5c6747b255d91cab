"""Randomly mutated files are refused in one line, or give a right result."""

import functools

import pytest

from tests.attacks.hostile import (
    campaign,
    commands,
    data_targets,
    privacy_checks,
    privacy_targets,
    run_targets,
)

_PRIVACY = [
    *privacy_targets.TARGETS,
    run_targets.Checkpoint,
    run_targets.Journal,
    run_targets.Vocabulary,
]


@pytest.mark.parametrize('cases', [40, pytest.param(400, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize('kind', _PRIVACY, ids=lambda kind: kind.name)
def test_mutated_files_are_one_line_or_a_right_result(kind, cases, tmp_path):
    outcomes = campaign.run(kind(tmp_path / 'files'), seed=15, cases=range(cases))
    assert not outcomes.findings
    assert outcomes.counts['taken'] + outcomes.counts['refused'] == cases
    # What is wrong with a run directory is in what `verify` returns.
    assert outcomes.counts['refused'] > cases // 20 or kind is privacy_targets.RunDirectory
    assert outcomes.counts['taken'] >= cases // 100


# Their readers need TensorFlow or SQLite, or are programs whose flags share names.
_ALONE = {
    kind.name: kind
    for kind in (*run_targets.TARGETS, *data_targets.TARGETS)
    if kind not in _PRIVACY
} | {name: functools.partial(commands.Commands, binary=name) for name in commands.COMMANDS}


@pytest.mark.exhaustive
@pytest.mark.parametrize('name', _ALONE)
def test_mutated_data_and_command_lines_are_one_line_or_a_result(name, tmp_path):
    outcomes = campaign.run_alone(_ALONE[name], tmp_path / 'files', range(100))
    assert not outcomes.findings
    assert outcomes.counts['taken']
    # What is wrong in a cache is computed anew.
    assert outcomes.counts['refused'] or name == run_targets.OptimizerCache.name


def test_the_campaign_finds_what_is_wrong(tmp_path):
    class Credulous(privacy_targets.Strategy):
        def check(self, value):
            rounds = value.rounds
            if rounds <= 7:
                privacy_checks.require_sensitivity(value, rounds, 1, rounds, 0.5)

    class Noisy(run_targets.Vocabulary):
        def read(self, path):
            raise KeyError('two\nlines')

    class Verbose(run_targets.Vocabulary):
        def read(self, path):
            raise ValueError('two\nlines')

    for kind, found in (
        (Credulous, 'wrong result'),
        (Noisy, 'KeyError'),
        (Verbose, 'not in one printable line'),
    ):
        outcomes = campaign.run(kind(tmp_path / kind.__name__), seed=0, cases=range(60))
        assert any(found in what for what in outcomes.findings), outcomes
