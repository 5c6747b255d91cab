"""What a privacy plan guarantees, without training; or what a finished run guaranteed.

Example: the numbers of the production run of document 003,

  python -m experiments.report_privacy --mechanism=tree --rounds=2000 --min_separation=314 \
    --max_participations=6 --noise_multiplier=7 --delta=1e-10 --accountant=rdp

Document 001: --mechanism=gaussian --sampling=poisson --population=763430
--clients_per_round=5000 --rounds=5000 --noise_multiplier=1 --delta=1e-9 --accountant=moments.

--run_dir=<directory> checks the files of a finished run, computes its report anew from its plan
and participation log, and prints it; or says what differs, with exit status 1.
"""

import json
import pathlib
import sys

from absl import flags

from dpfl import _storage, accounting, errors
from dpfl.accounting.records import archive, verification
from experiments.command import command_line
from experiments.flags import (
    composition,
    noise_flags,
    privacy_flags,
    recorded_flags,
    schema_flags,
    secagg_flags,
)

flags.adopt_module_key_flags(privacy_flags)
flags.adopt_module_key_flags(noise_flags)
flags.adopt_module_key_flags(secagg_flags)
flags.adopt_module_key_flags(composition)
_MECHANISM = flags.DEFINE_enum(
    'mechanism', None, privacy_flags.MECHANISMS, 'How the noise of the rounds is correlated.'
)
_SAMPLING = flags.DEFINE_enum(
    'sampling',
    'none',
    accounting.SAMPLINGS,
    'Secret random sampling that the guarantee may rely on; with --mechanism=gaussian.',
)
_POPULATION = flags.DEFINE_integer(
    'population', None, 'Number of clients that are sampled from; with --sampling.'
)
_CLIP_NORM = flags.DEFINE_float(
    'clip_norm', 1.0, "L2 bound of a client's update; stated in the report, changes no guarantee."
)
_CLIENTS_PER_ROUND = flags.DEFINE_integer(
    'clients_per_round',
    1,
    'Planned cohort size; stated in the report, changes no guarantee but with --sampling.',
)
_RUN_DIR = flags.DEFINE_string(
    'run_dir', None, 'Directory of a finished run: verify it instead. Other flags do not apply.'
)
_FORMAT = flags.DEFINE_enum(
    'format',
    'text',
    ['text', 'json', 'html'],
    'Form of the report: Markdown, JSON, or a page with figures.',
)


def main() -> None:
    """Prints the report of the plan that the flags describe, or of the run in a directory."""
    report = _verified() if _RUN_DIR.value else _planned()
    together = composition.together(report)
    if _FORMAT.value == 'html':
        from dpfl.reporting import privacy_page  # matplotlib takes a second to import.

        print(privacy_page.render(report, composition.render(together) if together else ''))
    elif _FORMAT.value == 'json':
        values = report.to_dict()
        if together:
            values['composition'] = together
        print(json.dumps(values, indent=2, allow_nan=False))
    else:
        print(report.render() + (composition.render(together) if together else ''))


def _planned() -> accounting.PrivacyReport:
    if _SAMPLING.value != 'none' and _POPULATION.value is None:
        raise command_line.UsageError(f'--sampling={_SAMPLING.value}: needs --population')
    plan = privacy_flags.plan(
        schema_flags.required('mechanism'),
        clip_norm=_CLIP_NORM.value,
        clients_per_round=_CLIENTS_PER_ROUND.value,
        sampling=_SAMPLING.value,
        population=_POPULATION.value,
        discretization=secagg_flags.discretization(_CLIP_NORM.value, _CLIENTS_PER_ROUND.value),
        **noise_flags.plan_fields(),
    )
    with command_line.refusing_bad_values():
        return accounting.PrivacyReport.from_plan(
            plan, [flags.FLAGS.delta], accountant=privacy_flags.accountant(plan)
        )


def _verified() -> accounting.PrivacyReport:
    path = pathlib.Path(_RUN_DIR.value)
    if not path.is_dir():
        raise command_line.UsageError(f'--run_dir={path}: must be a directory')
    try:
        # No run may write there meanwhile.
        with command_line.refusing_bad_values(), _storage.locked(path, to_read=True):
            found = verification.verify(path)
    except errors.StorageError as error:
        sys.exit(f'error: {error}')
    differences = [*found.differences]
    if found.report is not None:
        differences += recorded_flags.differences(path, found.report)
    for difference in differences:
        print(f'error: {path}: {difference}', file=sys.stderr)
    if differences:
        sys.exit(1)
    print(f'{path}: {_verdict(path, found)}', file=sys.stderr)
    for note in found.notes:
        print(f'{path}: note: {note}', file=sys.stderr)
    return found.report


def _verdict(path: pathlib.Path, found: verification.Verification) -> str:
    """What was verified, in one sentence, and no more than that."""
    listed = f'verified: every file that {archive.SUMS} lists is as it was'
    if found.notes:
        return f'{listed}, log and ledger agree, and the numbers follow from plan and log'
    if found.report.observed is None:
        return (
            f'{listed}, none was added, and the report follows from the plan; this is an export, '
            'without the log and the ledger of its run'
        )
    has_flags = (path / archive.FLAGS).exists()
    return (
        f'{listed}, none was added (but for {archive.CHECKPOINTS}/, which is secret and not '
        f'checked), log, ledger{", flags" if has_flags else ""} and plan agree, and the report '
        'follows from plan and log'
    )


if __name__ == '__main__':
    command_line.run(main)
