"""Mistakes that a competent person could make, for `python -m tests.faults`."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Fault:
    """A mistake in one place of the package.

    Attributes:
      name: what is wrong.
      path: file that is changed.
      before: text that occurs exactly once in it.
      after: the mistaken text.
      near: files of tests, or `file::test`, that should notice it and run first.
    """

    name: str
    path: str
    before: str
    after: str
    near: tuple[str, ...]


_NOISE = (
    Fault(
        'past noise that grows beyond what float32 holds',
        'dpfl/aggregators/noise/correlated.py',
        'largest = np.abs(rows - noise).max()',
        'largest = np.abs(noise).max()',
        ('tests/aggregators/refusals_test.py',),
    ),
    Fault(
        'variance for standard deviation',
        'dpfl/aggregators/query.py',
        'stddev = global_state.clip_norm * self._plan.update_noise_multiplier',
        'stddev = global_state.clip_norm * self._plan.update_noise_multiplier**2',
        ('tests/aggregators/query_test.py',),
    ),
    Fault(
        'standard deviation divided by the cohort twice',
        'dpfl/aggregators/query.py',
        'tf.cast(stddev, tf.float64) * unit',
        'tf.cast(stddev / self._plan.denominator, tf.float64) * unit',
        ('tests/aggregators/query_test.py',),
    ),
    Fault(
        'noise before the clip',
        'dpfl/aggregators/query.py',
        '            tf.nest.pack_sequence_as(sample_state, noised),\n',
        '            self._clip(\n'
        '                tf.nest.pack_sequence_as(sample_state, noised), global_state.clip_norm\n'
        '            ),\n',
        ('tests/aggregators/query_test.py',),
    ),
    Fault(
        'noise key without the round',
        'dpfl/aggregators/noise/draws.py',
        'return derive_from_content(derive(root, round_index), tf.concat(digests, 0))',
        'return derive_from_content(root, tf.concat(digests, 0))',
        ('tests/aggregators/noise/draws_test.py',),
    ),
    Fault(
        "noise key without the variable's type",
        'dpfl/aggregators/noise/correlated.py',
        'return draws.normal(draws.derive(round_key, flat.DTYPES.index(dtype)), size)',
        'return draws.normal(round_key, size)',
        ('tests/aggregators/noise/draws_test.py',),
    ),
    Fault(
        "the round's key does not depend on the sum",
        'dpfl/aggregators/noise/correlated.py',
        'return draws.of_round(state.key, round_index, (before, row, context))',
        'return draws.of_round(state.key, round_index, (before, row))',
        ('tests/aggregators/noise/repeated_rounds_test.py',),
    ),
    Fault(
        "the round's key does not depend on the rounds before",
        'dpfl/aggregators/noise/correlated.py',
        'return draws.of_round(state.key, round_index, (before, row, context))',
        'return draws.of_round(state.key, round_index, (row, context))',
        ('tests/aggregators/noise/repeated_rounds_test.py',),
    ),
    Fault(
        'hardened noise that does not depend on what the round is computed from',
        'dpfl/aggregators/noise/hardened_ring.py',
        'row {row}, context {context}',
        'row {row}',
        ('tests/aggregators/noise/repeated_rounds_test.py',),
    ),
    Fault(
        'a state goes on under another plan',
        'dpfl/aggregators/query.py',
        'differs = tf.not_equal(digest, own)',
        'differs = tf.not_equal(own, own)',
        ('tests/aggregators/query_test.py',),
    ),
    Fault(
        'the same noise key for two runs',
        'dpfl/aggregators/noise/draws.py',
        '        return fresh_root_key\n',
        '        key = fresh_root_key()\n        return lambda: key\n',
        ('tests/aggregators/noise/draws_test.py', 'tests/aggregators/adaptive_clip_test.py'),
    ),
    Fault(
        'noise of a stream restarted one round late',
        'dpfl/mechanisms/kernels.py',
        'rows[0, :, 1:] = 0.0',
        'rows[1:2, :, 1:] = 0.0',
        ('tests/mechanisms/conformance_test.py',),
    ),
    Fault(
        'noise of a round in the type of the buffers',
        'dpfl/aggregators/noise/correlated.py',
        'return linear_map[0, 0] * z + tf.cast(both[0], tf.float64), both[1:]',
        'fresh = tf.cast(linear_map[0, 0] * z, dtype)\n'
        '    return tf.cast(fresh + both[0], tf.float64), both[1:]',
        (
            'tests/aggregators/noise/correlated_test.py::test_fresh_noise_of_float32_coordinates_keeps_the_digits_of_float64',
        ),
    ),
    Fault(
        'past noise of float64 coordinates in float32',
        'dpfl/aggregators/noise/correlated.py',
        'dtype.name: tf.zeros([kernel.buffers, size], dtype)',
        'dtype.name: tf.zeros([kernel.buffers, size], tf.float32)',
        ('tests/aggregators/noise/correlated_test.py',),
    ),
    Fault(
        'noise of a ring for another mechanism',
        'dpfl/aggregators/noise/noise_ring.py',
        "if 'mechanism' in query.plan_differences(parts[0].plan, self._plan_digest):",
        "if 'mechanism' in query.plan_differences(parts[0].plan, parts[0].plan):",
        ('tests/aggregators/noise/rings_test.py',),
    ),
)

_SENSITIVITY = (
    Fault(
        'norms of rows for norms of columns',
        'dpfl/mechanisms/base.py',
        'return np.linalg.norm(self.strategy_matrix(), axis=0)',
        'return np.linalg.norm(self.strategy_matrix(), axis=1)',
        ('tests/mechanisms/conformance_test.py',),
    ),
    Fault(
        'Gram matrix of the rows',
        'dpfl/mechanisms/sensitivities/matrix_sensitivity.py',
        'return upper_bound(block.T @ block, participation)',
        'return upper_bound(block @ block.T, participation)',
        ('tests/mechanisms/sensitivities/matrix_sensitivity_test.py',),
    ),
    Fault(
        'signs ignored where entries of a schema are negative',
        'dpfl/mechanisms/toeplitz.py',
        'magnitudes = np.abs(coefficients)',
        'magnitudes = coefficients',
        ('tests/mechanisms/fuzz_test.py',),
    ),
    Fault(
        'signs ignored where entries of a log are negative',
        'dpfl/mechanisms/sensitivities/pattern_sensitivity.py',
        'weights = 2 * np.abs(gram)',
        'weights = 2 * gram',
        ('tests/mechanisms/sensitivities/pattern_sensitivity_test.py',),
    ),
    Fault(
        'digits that cancel not counted in the sensitivity',
        'dpfl/mechanisms/base.py',
        'squared = rounding.sum_up(bound.squared, terms) * (1 + error) ** 2',
        'squared = rounding.sum_up(bound.squared, terms)',
        ('tests/mechanisms/rounding_test.py',),
    ),
    Fault(
        'separation one round too long in the sensitivity',
        'dpfl/mechanisms/sensitivities/matrix_sensitivity.py',
        'longer[..., separation:] += best[..., : rounds - separation]',
        'longer[..., separation + 1 :] += best[..., : rounds - separation - 1]',
        ('tests/mechanisms/sensitivities/matrix_sensitivity_test.py',),
    ),
    Fault(
        'separation one round too short in the sensitivity',
        'dpfl/mechanisms/sensitivities/matrix_sensitivity.py',
        'for i in range(n - separation):\n',
        'separation -= 1\n        for i in range(n - separation):\n',
        ('tests/mechanisms/sensitivities/matrix_sensitivity_test.py',),
    ),
    Fault(
        'rounds between participations taken for their separation',
        'dpfl/participation/schema.py',
        'return cls(rounds, rounds_between + 1, max_participations)',
        'return cls(rounds, rounds_between, max_participations)',
        ('tests/participation/participation_test.py',),
    ),
    Fault(
        'max_participations ignored',
        'dpfl/participation/schema.py',
        'return min(self.max_participations, reachable)',
        'return reachable',
        ('tests/participation/participation_test.py',),
    ),
    Fault(
        'given participations counted where fewer can be reached',
        'dpfl/participation/schema.py',
        'return min(self.max_participations, reachable)',
        'return self.max_participations',
        ('tests/participation/participation_test.py',),
    ),
    Fault(
        'block-diagonal restarts as one block',
        'dpfl/mechanisms/restarts.py',
        'return _of_toeplitz_blocks(coefficients, self.lengths, participation)',
        'whole = self.base.with_rounds(self.rounds)\n'
        '            return whole.sensitivity_bound(participation)',
        ('tests/mechanisms/conformance_test.py',),
    ),
)

_ACCOUNTING = (
    Fault(
        'conversion of Renyi DP divides by the order',
        'dpfl/accounting/events.py',
        'return float('
        'dp.rdp.compute_epsilon(dp.rdp.RdpAccountant()._orders, divergences, delta)[0])',
        'orders = dp.rdp.RdpAccountant()._orders\n'
        '    added = np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / orders\n'
        '    return float(np.min(divergences + added))',
        ('tests/accounting/events_test.py', 'tests/accounting/oracle_test.py'),
    ),
    Fault(
        'delta for epsilon',
        'dpfl/accounting/gaussian.py',
        '.get_epsilon_for_delta(delta)',
        '.get_delta_for_epsilon(delta)',
        ('tests/accounting/oracle_test.py',),
    ),
    Fault(
        'replace-one at the sensitivity of zero-out',
        'dpfl/accounting/plan.py',
        "'replace_one': 2.0",
        "'replace_one': 1.0",
        ('tests/accounting/plan_test.py', 'tests/accounting/plan_fields_test.py'),
    ),
    Fault(
        'two phases of a run not added',
        'dpfl/accounting/part.py',
        'math.hypot(self.mu, *others)',
        'max(self.mu, *others)',
        ('tests/accounting/composition_test.py',),
    ),
    Fault(
        'amplification kept when the log refutes it',
        'dpfl/accounting/reports/observed.py',
        '        if not self.violations:\n            return plan\n',
        '        if not self.violations or plan.sampling is not None:\n            return plan\n',
        ('tests/accounting/sampling/conformance_test.py',),
    ),
    Fault(
        'a report may leave out that its counts refute the sampling',
        'dpfl/accounting/records/comparison.py',
        'not (seen.refutations or is_possible)',
        'False',
        ('tests/attacks/hostile/reports_test.py',),
    ),
    Fault(
        'violations of an earlier version read as none',
        'dpfl/accounting/records/comparison.py',
        "    refuse_more_texts('observed.violations', values['violations'], seen.violations)\n",
        '',
        ('tests/attacks/hostile/reports_test.py',),
    ),
    Fault(
        'a group in a sample counted as one client of its size',
        'dpfl/accounting/events.py',
        '    if neighbours == Neighbours():\n        return event.sampling_probability, noise\n',
        "    if neighbours.adjacency == 'zero_out':\n"
        '        return event.sampling_probability, noise / neighbours.group_size\n',
        ('tests/accounting/groups_test.py',),
    ),
    Fault(
        'rounding of scale and noise to float32 left out',
        'dpfl/aggregators/discretized.py',
        'margin = _MARGIN + _FLOAT32_MARGIN',
        'margin = _MARGIN',
        ('tests/aggregators/discretized_test.py',),
    ),
    Fault(
        "discretization's inflated norm left out",
        'dpfl/accounting/clipping.py',
        'return shift * self.settings.inflated_norm / plan.clip_norm',
        'return shift',
        ('tests/accounting/plan_test.py::test_rounding_inflates_the_updates_and_not_the_counts',),
    ),
    Fault(
        'slack of hardened noise left out',
        'dpfl/accounting/part.py',
        'return bound._replace(epsilon=bound.epsilon + slack)',
        'return bound',
        ('tests/accounting/hardened_test.py::test_slack_grows_with_rounds_and_is_in_epsilon',),
    ),
    Fault(
        'a guarantee beyond what the proof of hardened noise covers',
        'dpfl/accounting/hardened.py',
        'if is_correlated and run.reach > stream.LARGEST_MU:',
        'if False:',
        ('tests/accounting/hardened_test.py::test_a_report_has_no_guarantee_beyond_the_proof',),
    ),
    Fault(
        'a client listed twice in a round counted once',
        'dpfl/accounting/reports/report.py',
        'times * plan.sensitivity if times > 1 else None',
        'None',
        ('tests/accounting/report_test.py', 'tests/accounting/hardened_test.py'),
    ),
)

_SAMPLING = (
    Fault(
        'client drawn twice in a cohort',
        'dpfl/accounting/sampling/independent_cohorts.py',
        'generator.choice(self.population, size, replace=False)',
        'generator.choice(self.population, size)',
        ('tests/simulation/sampling_test.py',),
    ),
    Fault(
        "timers count from the beginning of a device's last round",
        'dpfl/simulation/population.py',
        'ended[aggregated] + self.timer_hours',
        'start + self.timer_hours',
        ('tests/simulation/population_test.py',),
    ),
    Fault(
        'clients of b-min-sep sampling return one round early',
        'dpfl/accounting/sampling/b_min_sep.py',
        'returns[free] = number + self.groups',
        'returns[free] = number + self.groups - 1',
        ('tests/accounting/sampling/monte_carlo_test.py',),
    ),
    Fault(
        'round of a guarded process beyond its plan',
        'dpfl/simulation/guard.py',
        'if t >= planned:',
        'if False:',
        ('tests/simulation/guard_test.py',),
    ),
    Fault(
        'cohorts of a run before the earlier one drawn again',
        'dpfl/simulation/training/warm_start.py',
        '(*_earlier_seeds(state), *([] if seed is None else [seed])),',
        '() if seed is None else (seed,),',
        ('tests/simulation/training/course_test.py',),
    ),
    Fault(
        'round of a guarded process recorded after its release',
        'dpfl/simulation/guard.py',
        '            t = self._begin(state, [batches for batches, _ in clients], client_ids)\n'
        '            output = self._process.next(state, [again for _, again in clients])\n',
        '            output = self._process.next(state, [again for _, again in clients])\n'
        '            t = self._begin(state, [batches for batches, _ in clients], client_ids)\n',
        ('tests/simulation/guard_test.py',),
    ),
    Fault(
        'log without the round in which a run is interrupted',
        'dpfl/simulation/run_journal.py',
        '        for t in range(self.log.rounds, self.state.begun):\n'
        '            self.begin(self._began[t], cohort(t))\n',
        '',
        (
            'tests/simulation/faults_test.py::'
            'test_an_interrupt_between_disk_and_memory_leaves_a_true_log_and_report',
        ),
    ),
    Fault(
        'held-out writers are clients, too',
        'dpfl/tasks/images/emnist.py',
        'return tuple(sorted(self._split[0], key=str))',
        'return self.files.writers',
        ('tests/tasks/held_out_test.py::test_no_person_is_on_two_sides',),
    ),
    Fault(
        'a client on both sides of own data',
        'dpfl/tasks/own_data.py',
        '    _check_apart(clients, heldout, specs)\n',
        '',
        ('tests/tasks/held_out_test.py::test_an_own_client_on_both_sides_is_refused',),
    ),
    Fault(
        'GAN clients train on the same images in every round',
        'dpfl/simulation/training/drawn_examples.py',
        "generator('drawn_examples', self.seed, t, client)",
        "generator('drawn_examples', self.seed, 0, client)",
        (
            'tests/simulation/training/gan_test.py::'
            'test_clients_draw_their_images_anew_in_every_round',
        ),
    ),
    Fault(
        'order of clients depends on a set',
        'dpfl/tasks/text/client_texts.py',
        'ordered = sorted(keys, key=str)',
        'ordered = list(keys)',
        ('tests/tasks/text/client_texts_test.py',),
    ),
    Fault(
        'a resumed run draws its cohorts anew',
        'dpfl/simulation/program.py',
        'experiment.turns(range(first, self._rounds))',
        'experiment.turns(range(self._rounds))',
        ('tests/simulation/resume_test.py::test_a_run_that_crashes_again_ends_as_if_it_had_not',),
    ),
    Fault(
        'a timer allows the next round too late',
        'dpfl/participation/round_times.py',
        'np.maximum(opened[is_back] - 1, is_back + 1)',
        'np.maximum(opened[is_back], is_back + 1)',
        ('tests/participation/round_times_test.py',),
    ),
    Fault(
        'recorded times limit participations where rounds wait for clients',
        'dpfl/planning/deployment.py',
        'if self.population_separation <= self.pace.most_away(self.timer_hours):',
        'if self.population_separation < self.pace.fewest_rounds(self.timer_hours):',
        ('tests/planning/planner_test.py',),
    ),
)

_CLIPPING_AND_AGGREGATION = (
    Fault(
        'FedSGD clips the gradient without its rate',
        'dpfl/learning/client_work.py',
        'tf.cast(learning_rate, sum_.dtype)',
        'tf.ones([], sum_.dtype)',
        ('tests/learning/algorithm_test.py::test_fedsgd_clips_the_gradient_times_its_rate',),
    ),
    Fault(
        'clip after the weight',
        'dpfl/aggregators/estimators.py',
        '        clipped = self._inner.preprocess_record(params, record.update)\n'
        '        return tf.nest.map_structure(lambda leaf: leaf * tf.cast(weight, leaf.dtype), '
        'clipped)\n',
        '        weighted = tf.nest.map_structure(\n'
        '            lambda leaf: leaf * tf.cast(weight, leaf.dtype), record.update\n'
        '        )\n'
        '        return self._inner.preprocess_record(params, weighted)\n',
        ('tests/aggregators/variants_test.py', 'tests/aggregators/estimators_test.py'),
    ),
    Fault(
        'each layer clipped to the norm of the whole update',
        'dpfl/aggregators/clipping.py',
        'clip_flat(leaf, bounds[index])',
        'clip_flat(leaf, clip_norm)',
        ('tests/aggregators/clipping_test.py',),
    ),
    Fault(
        'update with NaN passes',
        'dpfl/aggregators/clipping.py',
        'scale = tf.where(tf.math.is_finite(length), scale, 0.0)',
        'scale = tf.where(tf.math.is_inf(length), 0.0, scale)',
        ('tests/aggregators/clipping_test.py',),
    ),
    Fault(
        'infinite norm gives 0 times infinity',
        'dpfl/aggregators/clipping.py',
        'tf.math.multiply_no_nan(leaf, tf.cast(scale, leaf.dtype))',
        'leaf * tf.cast(scale, leaf.dtype)',
        ('tests/aggregators/clipping_test.py',),
    ),
    Fault(
        'division by the weight of the clients that came',
        'dpfl/aggregators/estimators.py',
        'tf.maximum(sample_state.weight, self._min_weight)',
        'sample_state.weight',
        ('tests/aggregators/variants_test.py', 'tests/aggregators/estimators_test.py'),
    ),
    Fault(
        'modulus without the sign of the sum',
        'dpfl/mechanisms/discretization.py',
        'return 2 * self.linf_bound * clients_per_round + 1',
        'return self.linf_bound * clients_per_round + 1',
        ('tests/mechanisms/discretization_test.py',),
    ),
    Fault(
        'modular sum of too large a cohort wraps silently',
        'dpfl/aggregators/discretized.py',
        '            self._largest_cohort,\n            message=',
        '            2 * self._largest_cohort,\n            message=',
        ('tests/aggregators/discretized_test.py::test_a_cohort_beyond_the_planned_one_is_refused',),
    ),
    Fault(
        'sign of the adaptive clip inverted',
        'dpfl/aggregators/adaptive_clip.py',
        'exponent = -settings.learning_rate * (fractions - target)',
        'exponent = settings.learning_rate * (fractions - target)',
        ('tests/aggregators/adaptive_clip_test.py',),
    ),
    Fault(
        'new clip norm one round before the noise starts afresh',
        'dpfl/aggregators/adaptive_clip.py',
        'np.isin(np.arange(rounds) + 1, plan.fresh_rounds)',
        'np.isin(np.arange(rounds) + 2, plan.fresh_rounds)',
        ('tests/aggregators/adaptive_clip_test.py',),
    ),
)

_RUNS = (
    Fault(
        'journal written after the release',
        'dpfl/simulation/program.py',
        '        intent = self._begin(t, state)\n'
        '        supplied = with_noise(state, intent)\n'
        '        output = experiment.process.next(supplied, data)\n',
        "        supplied = with_noise(state, ('', '', ''))\n"
        '        output = experiment.process.next(supplied, data)\n'
        '        self._begin(t, state)\n',
        ('tests/simulation/resume_test.py',),
    ),
    Fault(
        'a draw is made again with other settings',
        'dpfl/accounting/records/journal.py',
        '            is_allowed = is_allowed and before in (None, event)\n',
        '',
        ('tests/accounting/journal_test.py',),
    ),
    Fault(
        'a round with the noise of the one before',
        'dpfl/accounting/records/journal.py',
        '            is_allowed = is_allowed and '
        '(state.last is None or event.noise != state.last.noise)\n',
        '',
        ('tests/accounting/journal_test.py',),
    ),
    Fault(
        'journal that was cut is believed beside a checkpoint',
        'dpfl/simulation/run_directory.py',
        '            self._kept.require_whole(heads)\n',
        '',
        ('tests/simulation/resume_test.py::test_what_does_not_belong_together_is_refused',),
    ),
    Fault(
        'checkpoint with another state than its round gave',
        'dpfl/simulation/program.py',
        '            self._journal.require_state(first, self._start.head, digest)\n',
        '',
        ('tests/simulation/resume_test.py::test_what_does_not_belong_together_is_refused',),
    ),
    Fault(
        'key of a report that nobody compares',
        'dpfl/accounting/records/comparison.py',
        '                triples.append((errors.shown(path), *values))\n',
        '                triples += differences(*values, path)\n',
        ('tests/simulation/verification_test.py',),
    ),
    Fault(
        'figures of another version are not compared',
        'dpfl/accounting/records/comparison.py',
        '        was, now = _besides_drawing(was), _besides_drawing(now)\n',
        "        was = now = ''\n",
        ('tests/simulation/verification_test.py',),
    ),
    Fault(
        'rounds released by another plan are counted by that of an extension',
        'dpfl/accounting/records/verification.py',
        '                differences += _changed_plans(records)\n',
        '                pass\n',
        ('tests/simulation/verification_test.py',),
    ),
    Fault(
        'words of a line outside of the chain are in the report',
        'dpfl/accounting/records/archive.py',
        '            if first is None or not is_round or not _STACK.fullmatch(stack):\n',
        '            if first is None or not is_round:\n',
        ('tests/simulation/verification_test.py',),
    ),
    Fault(
        'checkpoint without the quantile of an adaptive clip',
        'dpfl/simulation/state.py',
        '    is_scalar = isinstance(expected, np.generic)\n',
        '    is_scalar = isinstance(expected, np.generic)\n'
        "    if is_scalar and expected.dtype.kind == 'f':\n"
        '        return expected  # The plan says what it is.\n',
        ('tests/simulation/resume_test.py::test_every_leaf_of_a_state_is_that_of_the_checkpoint',),
    ),
    Fault(
        'report reads the plan where it should read the log',
        'dpfl/accounting/reports/observed.py',
        'limits, sizes, statistics = log.observed(), log.cohort_sizes, log.statistics()',
        'limits, sizes, statistics = plan.participation, log.cohort_sizes, log.statistics()',
        ('tests/accounting/report_test.py',),
    ),
    Fault(
        'exported run with plots of private metrics',
        'dpfl/simulation/public_copy.py',
        r"r'plots/generated_\d+\.png'",
        r"r'plots/.+\.png'",
        (
            'tests/experiments/export_run_test.py::test_the_copy_of_a_small_run_has_these_files_and_no_others',
        ),
    ),
    Fault(
        'flag that is read nowhere',
        'dpfl/simulation/training/config.py',
        "    eval_every: int = setting(10, 'Rounds between two evaluations.', minimum=1)\n",
        "    eval_every: int = setting(10, 'Rounds between two evaluations.', minimum=1)\n"
        "    eval_after: int = setting(0, 'Rounds before the first evaluation.', minimum=0)\n",
        ('tests/repository/layering_test.py::test_every_setting_and_every_flag_is_read',),
    ),
    Fault(
        'exit status 0 after a failure',
        'dpfl/cli/command/command_line.py',
        '        except (errors.RunError, errors.DataError) as error:\n'
        '            _fail(str(error), _REFUSED)\n',
        '        except (errors.RunError, errors.DataError) as error:\n'
        "            print(f'error: {error}', file=sys.stderr)\n",
        ('tests/cli/command/standard_streams_test.py',),
    ),
)

FAULTS = (
    *_NOISE,
    *_SENSITIVITY,
    *_ACCOUNTING,
    *_SAMPLING,
    *_CLIPPING_AND_AGGREGATION,
    *_RUNS,
)
