# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Planning and reporting a run of production
#
# A fleet of phones trains a model. The guarantee needs limits of participation: how often a phone takes part, and how
# many rounds lie between two of its turns. A timer on the phone keeps it away for some hours; how many *rounds* that is
# depends on how fast rounds are. This page plans a run from the times of earlier rounds, and reports it from its log
# afterwards. The fleet is simulated, the files are those that a production system would have.
#
# ## What is known before: times of earlier rounds

# %%
import csv
import hashlib
import pathlib
import textwrap

import matplotlib.pyplot as plt
import numpy as np

from dpfl import Participation, accounting, mechanisms
from dpfl.participation import read_log
from dpfl.simulation import population

TIMER = 48  # Hours.
fleet = population.Population(population=60_000, clients_per_round=600, timer_hours=TIMER, seed=1)
pilot = population.simulate(fleet, 500)
print(f'{pilot.days:.1f} days, {500 / pilot.days:.0f} rounds a day')
print(pilot.times.fewest_rounds(TIMER), 'rounds at least are opened within any', TIMER, 'hours')

# %% caption="Rounds are fast at night, when phones are idle, and slow by day"
figure, axes = plt.subplots(figsize=(7.5, 3), layout='constrained')
axes.plot(pilot.start_hours % 24, 60 * pilot.duration_hours, '.', ms=3, alpha=0.5)
axes.set(xlabel='hour of the day (UTC)', ylabel='minutes per round', xlim=(0, 24), ylim=0)
plt.show()

# %% [markdown]
# A phone that took part in a round is back after 48 hours at the earliest. In every window of 48 hours, also the
# slowest one, at least that many rounds were opened. So this is the separation that the timer ensures, as long as
# rounds do not become rarer. A plan takes a little less.
#
# ## The plan
#
# 600 rounds, separation 55, and a target: epsilon 4 at delta 1e-8. For each mechanism, the least noise that meets it:

# %%
ROUNDS, DELTA = 600, 1e-8
participation = Participation(ROUNDS, min_separation=55)
candidates = {
    'independent': mechanisms.Identity(ROUNDS),
    'tree (Honaker)': mechanisms.HonakerTree(ROUNDS),
    'BLT, 3 buffers': mechanisms.optimize_blt(participation, num_buffers=3),
}
plans = {
    name: accounting.PrivacyPlan.calibrated(
        epsilon=4.0,
        delta=DELTA,
        mechanism=mechanism,
        participation=participation,
        clip_norm=1.0,
        clients_per_round=600,
    )
    for name, mechanism in candidates.items()
}
print('at most', participation.count, 'rounds per phone')
for name, plan in plans.items():
    worst = plan.noise_multiplier * plan.mechanism.max_error()
    print(f'{name:16} noise multiplier {plan.noise_multiplier:6.2f}, worst prefix sum {worst:6.1f}')

# %% [markdown]
# The noise multipliers of different mechanisms say nothing by themselves: what counts is the noise of the models, the
# prefix sums. The BLT wins, and is the plan.
#
# The phone does not count its rounds, the timer alone limits them. Another timer would have given another plan:

# %% caption="What the timer buys: noise of the worst prefix sum at epsilon 4, BLT"
timers = [12, 24, 36, 48, 72, 96]
noise = []
for hours in timers:
    schema = Participation(ROUNDS, min_separation=pilot.times.fewest_rounds(hours))
    plan = accounting.PrivacyPlan.calibrated(
        epsilon=4.0,
        delta=DELTA,
        mechanism=mechanisms.optimize_blt(schema, num_buffers=2),
        participation=schema,
        clip_norm=1.0,
        clients_per_round=600,
    )
    noise.append(plan.noise_multiplier * plan.mechanism.max_error())
figure, axes = plt.subplots(figsize=(6, 3), layout='constrained')
axes.plot(timers, noise, 'o-')
axes.set(xlabel='timer in hours', ylabel='noise of the worst prefix sum', ylim=0, xticks=timers)
plt.show()

# %% [markdown]
# (A longer timer needs a larger fleet, and slows rounds down when too few phones are left. The times here are those of
# rounds with a timer of 48 hours; a decision would simulate each timer.)
#
# ## The run
#
# It takes two weeks and a half. The server writes a row for each update that it used: a hashed id, the round, the time.

# %%
other_weeks = population.Population(
    population=60_000, clients_per_round=600, timer_hours=TIMER, seed=2
)
run = population.simulate(other_weeks, ROUNDS)
names = [hashlib.sha256(b'salt %d' % number).hexdigest()[:16] for number in range(60_000)]


def write(path, log, starts):
    with open(path, 'w', newline='') as file:
        rows = csv.writer(file)
        rows.writerow(['client', 'round', 'time'])
        for t, start in enumerate(starts):
            rows.writerows([names[c], t, round(3600 * start)] for c in log.cohort(t))


path = pathlib.Path('tutorial', 'log.csv')
path.parent.mkdir(exist_ok=True)
write(path, run.log, run.start_hours)
print(''.join(path.open().readlines()[:3]) + f'{path.stat().st_size / 1e6:.1f} MB')

# %% [markdown]
# ## The report
#
# The log is read back, its limits are compared with the plan, and the report says whether they keep it. (The hours are
# those between the starts of two rounds of a phone. They can be less than the timer: when its time is over, a phone may
# join a round that is open already.)

# %%
found = read_log(path)
observed = found.log.observed()
print('least separation', observed.min_separation, 'rounds,', f'{found.shortest_hours():.1f} hours')
print('most rounds of a phone', observed.max_participations)


def show(report):
    """The beginning of the page of a report."""
    for line in report.render().partition('## Not covered')[0].splitlines():
        print(textwrap.fill(line, 100, subsequent_indent='  '))


plan = plans['BLT, 3 buffers']
report = accounting.PrivacyReport.from_plan(plan, deltas=[DELTA], log=found.log)
print(report.basis, report.guarantee.epsilons)
show(report)

# %% caption="What the log shows: rounds between two turns of a phone, and turns per phone"
by_client = found.log.by_client()
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout='constrained')
left.hist(by_client.separations(), bins=range(0, 320, 4))
left.axvline(participation.min_separation, color='C3', label='plan')
left.set(xlabel='rounds between two turns', ylabel='pairs', xlim=0)
left.legend()
counts = np.bincount(by_client.counts)
right.bar(range(len(counts)), counts)
right.axvline(participation.count + 0.5, color='C3', label='plan')
right.set(xlabel='turns of a phone', ylabel='phones', yscale='log')
right.legend()
plt.show()

# %% [markdown]
# Most phones come back as soon as the timer is over, two nights later, others on one of the next nights: the peaks are
# a day apart. The plan has room: no phone reached its limits.
#
# ## When the fleet does not keep the plan
#
# Twenty phones come back after 30 rounds: somebody has set back their clocks, and the timer believed it.

# %%
early = set()
cohorts = [run.log.cohort(t).copy() for t in range(ROUNDS)]
for place, phone in enumerate(cohorts[100][:20]):
    if phone not in cohorts[130]:
        cohorts[130][-1 - place] = phone
        early.add(int(phone))
write(path, type(run.log)(cohorts), run.start_hours)
second = read_log(path)
report = accounting.PrivacyReport.from_plan(plan, deltas=[DELTA], log=second.log)
print(len(early), 'phones; least separation', second.log.observed().min_separation)
print(report.basis, report.guarantee.epsilons)

# %% [markdown]
# The report does not repeat the promise of the plan: its numbers are those of the log, and its first lines say so.

# %%
show(report)

# %% [markdown]
# The commands for the same work are `simulate_population`, `plan_privacy --round_times` and
# `report_privacy --participation_log`; [Plan production](../production.md#logs-and-round-times) has the file
# formats and what each kind of record can prove.
