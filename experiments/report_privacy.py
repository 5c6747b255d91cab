"""What a privacy plan guarantees, without training: rho, mu, epsilon, and the report.

Example: the numbers of the production run of document 003,

  python -m experiments.report_privacy --mechanism=tree --rounds=2000 --min_separation=314 \
    --max_participations=6 --noise_multiplier=7 --delta=1e-10 --accountant=rdp
"""

from absl import flags

from dpfl import accounting
from experiments import command_line, privacy_flags, schema_flags

flags.adopt_module_key_flags(privacy_flags)
_MECHANISM = flags.DEFINE_enum(
    'mechanism', None, privacy_flags.MECHANISMS, 'How the noise of the rounds is correlated.'
)
_SAMPLING = flags.DEFINE_enum(
    'sampling', 'none', ['none'], 'Random sampling that the guarantee may rely on.'
)
_CLIP_NORM = flags.DEFINE_float(
    'clip_norm', 1.0, 'L2 bound of a client\'s update; stated in the report, changes no guarantee.'
)
_CLIENTS_PER_ROUND = flags.DEFINE_integer(
    'clients_per_round', 1, 'Planned cohort size; stated in the report, changes no guarantee.'
)
_FORMAT = flags.DEFINE_enum('format', 'text', ['text', 'json'], 'Form of the report.')


def main() -> None:
    """Prints the report of the plan that the flags describe."""
    plan = privacy_flags.plan(
        schema_flags.required('mechanism'),
        clip_norm=_CLIP_NORM.value,
        clients_per_round=_CLIENTS_PER_ROUND.value,
    )
    with command_line.refusing_bad_values():
        report = accounting.PrivacyReport.from_plan(
            plan, [flags.FLAGS.delta], accountant=flags.FLAGS.accountant
        )
    print(report.to_json() if _FORMAT.value == 'json' else report.render())


if __name__ == '__main__':
    command_line.run(main)
