"""Command lines of the binaries for accounting that are refused, for `bad_flags_test.py`."""

_BAND = '--mechanism=fichtenberger_toeplitz --bands=342 --noise_multiplier=1'
_SMALL_POPULATION = '--population=3000 --clients_per_round=100 --rounds=90 --timer_hours=24'

# Binary, flags that all of its command lines have, and the others with the message.
REFUSED = [
    (
        'report_privacy',
        '--mechanism=tree --noise_multiplier=7 --delta=1e-10',
        [
            ('', '--rounds: must be given'),
            ('--rounds=abc', '--rounds=abc: must be an integer'),
        ],
    ),
    (
        'report_privacy',
        '--mechanism=tree --rounds=20 --noise_multiplier=7 --delta=1e-10',
        [
            ('--min_separation=21', '--min_separation=21: must be <= 20, the rounds'),
            ('--min_separation=3 --max_participations=8', '8: must be <= 7, what rounds'),
            ('--delta=1', '--delta=1.0: must be a finite number > 0 and < 1'),
            ('--accountant=guess', '--accountant=guess: must be one of pld, rdp, analytic'),
            ('--mechanism=magic', '--mechanism=magic: must be one of gaussian, tree, '),
            ('--sampling=poisson', '--sampling=poisson: needs --population'),
            ('--groups=10', '--groups=10: needs sampling=cyclic_poisson'),
            ('--population=10', '--population=10: must be None without sampling'),
            ('--selected_from=10', '--selected_from=10: must be a distribution and its mean'),
            ('--noise=hardened --selected_from=poisson:10', 'must be default with a selection'),
            ('--restart_every=5', '--restart_every=5: needs restart_first'),
            ('--secagg', '--secagg: needs either secagg_scale or secagg_bits'),
            ('--secagg --secagg_bits=20', '--secagg: needs model_dimension'),
            ('--secagg --secagg_scale=nan --model_dimension=9', '--secagg_scale=nan: '),
            ('--secagg --secagg_bits=1 --model_dimension=999', '--secagg_bits=1: must'),
            ('--compose_with=absent', '--compose_with=absent: No such file'),
            ('--compose_with={damaged}', 'not a privacy report'),
            ('--run_dir=absent', '--run_dir=absent: must be a directory'),
            ('--run_dir={folder}', 'must hold a finished run (SHA256SUMS is missing)'),
            ('--bogus=1', "Unknown command line flag 'bogus'"),
            ('word', 'word: is not a flag'),
            ('--strategy=blt_b400', '--strategy: mechanism=tree does not take this parameter'),
            ('--mechanism=blt', '--mechanism=blt: needs strategy, or blt_decay and blt_scale'),
            ('--mechanism=blt --strategy=absent', '--strategy=absent: must be a file or one'),
            ('--mechanism=blt --strategy={damaged}', 'cannot be read as a mech'),
            ('--mechanism=blt --blt_decay=2 --blt_scale=1', 'decay=[2.0]: each entry'),
            ('--mechanism=blt --blt_decay=x --blt_scale=1', '--blt_decay=x: must be'),
        ],
    ),
    (
        'report_privacy',
        '--mechanism=gaussian --sampling=poisson --population=1000 --clients_per_round=10 '
        '--rounds=20 --noise_multiplier=1 --delta=1e-6',
        [
            ('--population=5', '--population=5: must be an integer >= 10'),
            ('--accountant=analytic_gaussian', '--accountant=analytic_gaussian: must be one'),
            ('--min_separation=2', '--min_separation=2: must be 1 with sampling=poisson'),
            ('--group_size=2 --selected_from=poisson:10', '--group_size=2: must be 1 with'),
        ],
    ),
    (
        'extrapolate_privacy',
        '',
        [
            ('--populations=9 --cohorts=3', '--run_dir: must be given'),
            ('--run_dir={run} --cohorts=3', '--populations: must be given'),
            ('--run_dir={run} --populations=a --cohorts=3', '--populations=a: must be'),
            ('--run_dir={out} --populations=9 --cohorts=3', '{out}/plan.json: not the plan'),
            ('--run_dir={run} --populations=9 --cohorts=30', '--cohorts=30: must be <= 9'),
            (
                '--run_dir={run} --populations=99 --cohorts=3 --delta=0.001 --delta_power=1',
                '--delta_power: cannot be combined with --delta',
            ),
            ('--run_dir={run} --populations=99 --cohorts=3 --plot=/no/x.png', '--plot=/no/x.png: '),
        ],
    ),
    (
        'optimize_strategy',
        '--rounds=48 --output={out}',
        [
            ('--mechanism=switched_blt', '--mechanism=switched_blt: must be one of'),
            ('--mechanism=blt --nesterov', '--nesterov=True: needs momentum'),
            ('--mechanism=blt --server_cooldown_rounds=3', 'needs server_schedule=linear'),
            ('--mechanism=blt --output=', '--output: must be given'),
            ('--mechanism=blt --output=/nowhere/a.npz', 'must be in a directory'),
        ],
    ),
    (
        'compare_mechanisms',
        '--rounds=60 --min_separation=20 --max_participations=3',
        [
            ('--mechanisms=magic', '--mechanisms=magic: must be one of gaussian'),
            ('--mechanisms=tree --values=a', '--values=a: must be comma-'),
            ('--mechanisms=tree --relative_to=blt', '--relative_to=blt: must'),
            ('', '--mechanisms: must be given'),
            ('--mechanisms=banded:4@30/10 --values=60,90', 'has fewer rounds than every value'),
            ('--mechanisms=tree --data=/nowhere/a.csv', '--data=/nowhere/a.csv: No such file'),
        ],
    ),
    (
        'studies.optimize_sampling',
        '--rounds=4 --population=60 --clients_per_round=6 --delta=1e-5 --output={out}',
        [
            ('', '--target_epsilon: or target_error must be given'),
            ('--target_epsilon=2 --target_error=3', '--target_error=3.0: cannot be combined'),
            ('--target_epsilon=2 --clients_per_round=61', '--clients_per_round=61: must be'),
            ('--target_epsilon=2 --output=/no/a.npz', '--output=/no/a.npz: must be in'),
        ],
    ),
    (
        'plan_privacy',
        '--population=4210000 --rounds=1900 --clients_per_round=6500',
        [
            ('--mechanisms=tree', '--mechanisms=tree: must have a noise multiplier, as in NAME=7'),
            ('--mechanisms=tree=x', '--mechanisms=tree=x: must be NAME or NAME=NOISE_MULTIPLIER'),
            ('--mechanisms=tree=7,tree=7', '--mechanisms=tree=7: must not be given twice'),
            ('--mechanisms=blt:4=7', '--mechanisms=blt:4: must have the schema that it is made'),
            ('--mechanisms=banded:9@20/9=7', 'are all made for fewer rounds'),
            ('--mechanisms=tree=7 --noise_multiplier=7', 'cannot have a noise multiplier beside'),
            ('--mechanisms=tree=7 --mechanism=tree', '--mechanism=tree: cannot be combined with'),
            ('--mechanism=tree --match=rmse:tree,7@1901', 'must have a round from 1 to 1900'),
            ('--mechanism=tree --match=rho:1 --target_rho=1', '--match: cannot be combined'),
            ('--mechanism=tree --noise_multiplier=7 --data=a', '--data=a: must end in .csv'),
            (
                '--mechanism=tree --noise_multiplier=7 --simulated_clients_per_round=9',
                '--simulated_clients_per_round=9: needs simulated_noise_multiplier',
            ),
        ],
    ),
    (
        'plan_privacy',
        '--population=171000 --clients_per_round=100 --rounds=2052 --delta=1e-6 '
        '--sampling=cyclic_poisson',
        [
            (f'{_BAND} --groups=5', '--groups=5: must be at least 342'),
            (f'{_BAND} --min_separation=9', '--min_separation: cannot be'),
            (f'{_BAND} --availability=0.5', '--availability=0.5: must be 1'),
            ('--target_epsilon=1', '--mechanism=auto: cannot be combined with sampling='),
            (f'{_BAND} --sampling=none --groups=9', '--groups=9: needs a sampling that has it'),
        ],
    ),
    (
        'plan_privacy',
        '--population=4210000 --rounds=1900 --clients_per_round=6500 --mechanism=tree',
        [
            ('', '--noise_multiplier: must be given, or a target, or a simulation'),
            ('--target_epsilon=1e-9 --accountant=rdp', '--target_epsilon=1e-09: must be at least'),
            ('--noise_multiplier=7 --min_separation=700', '--min_separation=700: must be <= 647'),
            ('--noise_multiplier=7 --sweep_rounds=10,x', '--sweep_rounds=10,x: must be comma-'),
            ('--noise_multiplier=7 --mechanism=auto', '--model_dimension: must be given'),
            ('--noise_multiplier=7 --workload=server', '--workload=server: needs mechanism=auto'),
            ('--noise_multiplier=7 --timer_hours=24', '--timer_hours=24.0: needs round_minutes'),
            ('--noise_multiplier=7 --rounds_by_day=3,4', '--rounds_by_day=3,4: needs timer_hours'),
            (
                '--noise_multiplier=7 --timer_hours=96 --rounds_by_day=3,4',
                '--timer_hours=96.0: must be < 96',
            ),
            (
                '--noise_multiplier=7 --timer_hours=9 --rounds_by_day=3 --round_minutes=4',
                '--rounds_by_day=3: cannot be combined with round_minutes',
            ),
            (
                '--noise_multiplier=7 --timer_hours=9 --round_minutes=4 --daily_pattern=1,2',
                '--daily_pattern=1,2: must be 24 numbers, has 2 entries',
            ),
            (
                '--noise_multiplier=7 --timer_hours=9 --round_times=absent.csv',
                '--round_times=absent.csv: cannot be read',
            ),
        ],
    ),
    (
        'reproduce_figures',
        '--only=002/fig10',
        [
            ('--only=005', '--only=005: must be the beginning of one of 000/fig4, 001/table1'),
            ('--output_dir=', '--output_dir: must be given'),
            ('--output_dir=/dev/null/a', '--output_dir=/dev/null/a: Not a directory'),
            ('--statements=absent.json', '--statements=absent.json: cannot be read'),
        ],
    ),
    (
        'reproduce_tables',
        '',
        [
            ('--only=005', '--only=005: must be the beginning of a row id, such as 000'),
            ('--format=xml', '--format=xml: must be one of text, json, markdown'),
            ('word', 'word: is not a flag'),
            ('--published=absent.json', '--published=absent.json: cannot be read'),
        ],
    ),
    (
        'simulate_population',
        _SMALL_POPULATION,
        [
            ('--vary=timer_hours', '--values: must be given with --vary'),
            ('--vary=population --values=1e6', '--values=1e6: must be comma-separated int'),
            ('--vary=timer_hours --values=24,-1', '--timer_hours=-1.0: must be a finite'),
            ('--vary=timer_hours --values=1 --output=a.npz', '--output: cannot be combined'),
            ('--output=absent/log.npz', '--output=absent/log.npz: must be in a directory'),
            ('--plot=log.xyz', '--plot=log.xyz: must end in one of'),
            ('--mechanism=magic', '--mechanism=magic: must be a file or one of'),
            ('--mechanism=tree --noise_multiplier=0', '--noise_multiplier=0.0: must be'),
            ('--log={log}', '--population: cannot be combined with --log'),
        ],
    ),
    (
        'simulate_population',
        '',
        [
            ('--population=60 --clients_per_round=50', '--rounds: must be given'),
            ('--log={damaged}', 'damaged: not a participation log'),
            ('--log={empty}', 'empty.npz: must hold at least one client'),
        ],
    ),
]
