r"""Attacks the membership of clients in a finished run; compares with what its guarantee allows.

Example:
  python -m experiments.studies.attack_membership --run_dir=runs/blt

For a run on text. An attacker who has the model and the text of a client guesses whether the client
trained the model: it did if its mean loss is small. With --reference_model the loss is compared
with that under a model of other text, with --reference_runs with those under models that the client
did not train ([Carlini22]). The table has the area under the curve, and true positive rates at
false positive rates of 0.001, 0.01 and 0.1 and at the largest advantage, with intervals, beside the
largest true positive rate that the guarantee of the run allows. Exits with status 1 if an attack is
better than that. Others than members are held-out clients; p-values say whether these are alike.
"""

import json
import sys
from typing import Any

from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.reporting import plain_text
from experiments.studies.attacks.membership_config import MembershipConfig

_RUN = SettingsFlags(output_flags.RunDirConfig)
_CONFIG = SettingsFlags(MembershipConfig)
_FORMAT = SettingsFlags(output_flags.FormatConfig)
_EXCEEDS = 1


def main() -> None:
    """Checks the flags, attacks the run, and prints what was found."""
    config = _CONFIG.read()
    directory = command_line.required(_RUN.read(), 'run_dir')
    # Importing TensorFlow takes seconds, so everything else is checked first.
    with command_line.refusing_bad_values(path='run_dir'):
        from experiments.studies.attacks import clients, finished_run

        found = clients.attack(finished_run.open_run(directory), config)
    if _FORMAT.read().format == 'json':
        print(json.dumps(found.to_dict(), allow_nan=False))
    else:
        print(_text(found.to_dict()))
    if any(test.exceeds for each in found.outcomes.values() for test in each.tests):
        print(f'error: {directory}: an attack exceeds the guarantee', file=sys.stderr)
        sys.exit(_EXCEEDS)


def _text(values: dict[str, Any]) -> str:
    """The tables of what was found."""
    attacks = values.pop('attacks')
    alike = {f'p_value_of_{name}': value for name, value in values.pop('alike').items()}
    rows = [
        {
            'attack': name,
            'auc': found['auc'],
            'p_value': found['p_value'],
            'at_fpr': test['target_fpr'] or 'best',
            'fpr': test['fpr']['value'],
            'fpr_upper': test['fpr']['upper'],
            'tpr': test['tpr']['value'],
            'tpr_lower': test['tpr']['lower'],
            'advantage': test['advantage']['value'],
            'allowed_tpr': test['allowed_tpr'],
        }
        for name, found in attacks.items()
        for test in (*found['tests'], found['best'])
    ]
    return f'{plain_text.table({**values, **alike})}\n\n{plain_text.columns(rows)}'


if __name__ == '__main__':
    command_line.run(main)
