"""Adaptive clipping: the noise of updates and counts, and the course of the norm in reports."""

import csv
import dataclasses
import io
import json
import math

import dp_accounting
import mpmath
import pytest

from dpfl import Participation, accounting, mechanisms
from dpfl.accounting import clipping
from dpfl.accounting.clipping import ClipCourse
from dpfl.accounting.records import archive, cohorts, verification
from tests.accounting import archives, plans

_NOISES = [(7.0, 325.0), (7.0, 3.6), (0.54, 25.0), (1e-3, 1.0), (100.0, 50.001), (7.0, 1e9)]


@pytest.mark.parametrize('z, count_stddev', _NOISES)
def test_theorem_1_in_high_precision(z, count_stddev):
    with mpmath.workdps(50):
        exact = 1 / mpmath.sqrt(mpmath.mpf(z) ** -2 - (2 * mpmath.mpf(count_stddev)) ** -2)
        found = clipping.update_noise_multiplier(z, count_stddev)
        # Near 2 sigma_b = z the result depends on the last digits of its arguments.
        condition = float((exact / z) ** 2)
        assert abs(found / exact - 1) < 1e-15 * (4 + condition)


@pytest.mark.parametrize('z, count_stddev', _NOISES)
def test_both_releases_together_have_the_guarantee_of_z(z, count_stddev):
    tree = mechanisms.Restarted.every(mechanisms.BinaryTree(40), 7, 16)
    fields = dict(mechanism=tree, participation=Participation(40, 5, 6))
    noise = clipping.update_noise_multiplier(z, count_stddev)
    updates = plans.plan(noise_multiplier=noise, **fields)
    # Each client adds at most 1/2 to the sum of b_i - 1/2.
    counts = plans.plan(clip_norm=0.5, noise_multiplier=count_stddev / 0.5, **fields)
    assert counts.stddev == count_stddev
    whole = plans.plan(noise_multiplier=z, **fields)
    assert updates.mu**2 + counts.mu**2 == pytest.approx(whole.mu**2, rel=1e-12)
    both = dp_accounting.ComposedDpEvent([updates.dp_event(), counts.dp_event()])
    if whole.mu < 50:
        assert accounting.epsilon_of_event(both, 1e-6, 'analytic_gaussian') == pytest.approx(
            whole.epsilon(1e-6, 'analytic_gaussian'), rel=1e-9
        )


def test_no_noise_stays_no_noise():
    assert clipping.update_noise_multiplier(0.0, 1.0) == 0.0


# --- The course of the clip norm.

_CSV = (
    'round,clip_norm,clip_norm_estimate,loss\n'
    '1,,,3.0\n2,0.5,0.6,\n3,0.5,0.55,\n4,0.55,0.7,1.0\n5,0.55,0.65,\n'
)
_COURSE = ClipCourse(((1, 0.5), (3, 0.55)), 0.65)


def _adaptive_record():
    base = mechanisms.Blt(6, [0.9, 0.4], [0.2, 0.3])
    return archives.make_record(
        mechanism=mechanisms.Restarted(base, (3,), 6),
        adaptive_clip=accounting.AdaptiveClip(count_stddev=5.0),
    )


def test_the_course_follows_from_the_metrics():
    assert ClipCourse.from_rows(csv.DictReader(io.StringIO(_CSV))) == _COURSE
    rows = [{'round': 1, 'clip_norm': 0.5, 'clip_norm_estimate': 0.25}]
    assert ClipCourse.from_rows(rows) == ClipCourse(((0, 0.5),), 0.25)
    assert ClipCourse.from_rows([{'round': '1', 'loss': '2.0'}]) is None


def test_a_report_keeps_the_course_and_says_how_to_use_it():
    report = dataclasses.replace(_adaptive_record().report(archives.LOG), clip_course=_COURSE)
    values = json.loads(report.to_json())
    assert values['clip_course'] == {'norms': [[1, 0.5], [3, 0.55]], 'estimate': 0.65}
    assert plans.read(report) == report
    page = report.render()
    assert '`--clip_norm=0.65`' in page and '| 3 | 0.55 |' in page
    other = _adaptive_record().report(archives.LOG)
    assert 'fixes the clip norm' not in other.render() and 'clip_course' not in other.to_dict()


def _metrics(estimate: float = 0.65):
    pairs = [None, (0.5, 0.6), (0.5, 0.55), (0.55, 0.7), (0.55, estimate)]
    names = ('clip_norm', 'clip_norm_estimate')
    return {t: dict(zip(names, pair, strict=True)) for t, pair in enumerate(pairs) if pair}


def test_verification_computes_the_course_from_the_journal(tmp_path):
    directory = archives.write(tmp_path, _adaptive_record(), metrics=_metrics())
    found = verification.verify(directory)
    assert found.differences == () and found.report.clip_course == _COURSE
    other = archives.make_journal(_adaptive_record(), metrics=_metrics(0.75))
    (directory / archive.LEDGER).write_bytes(other)
    differences = archives.with_new_digests(directory)
    assert any(each.startswith('privacy_report.json: clip_course.estimate') for each in differences)
    assert any(each.startswith('metrics.csv: ') for each in differences)


def test_runs_that_did_not_record_a_course_have_none(tmp_path):
    found = verification.verify(archives.write(tmp_path, _adaptive_record()))
    assert found.differences == () and found.report.clip_course is None


@pytest.mark.parametrize('value', [math.nan, -1.0, 0.0, math.inf])
def test_a_course_that_is_none_is_no_report(tmp_path, value):
    directory = archives.write(tmp_path, _adaptive_record(), metrics=_metrics())
    other = archives.make_journal(_adaptive_record(), metrics=_metrics(value))
    (directory / archive.LEDGER).write_bytes(other)
    found = verification.verify(directory)
    assert found.report is None and found.differences


@pytest.mark.parametrize(
    'place, text',
    [*(('0.65', text) for text in ('nan', '-1', '0.0', 'x', '1e999')), ('round', 'other')],
)
def test_metrics_of_an_export_that_are_none_are_named(tmp_path, place, text):
    directory = archives.write(tmp_path, _adaptive_record())
    record = dataclasses.replace(_adaptive_record(), exported=True)
    for name in (archive.LEDGER, cohorts.NAME, archive.LOG):
        (directory / name).unlink()
    (directory / archive.PLAN).write_text(record.to_json())
    (directory / archive.METRICS).write_text(_CSV.replace(place, text))
    archives.with_new_digests(directory)
    found = verification.verify(directory)
    assert found.report is None and 'metrics.csv: not the metrics of a run' in found.differences[-1]
