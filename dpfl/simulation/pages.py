"""The pages of a run: functions of its report and of what else its directory has recorded.

A run writes them at its end, an export has them, and verification computes them again.
"""

import pathlib

from dpfl import accounting
from dpfl.accounting.measured.measured import AUDIT, Scores
from dpfl.accounting.records import archive
from dpfl.simulation import run_files
from dpfl.simulation.training import recorded_settings
from dpfl.simulation.training.gan_config import GanConfig
from dpfl.simulation.training.scale_config import ScaleConfig


def of_run(directory: pathlib.Path, report: accounting.PrivacyReport) -> dict[str, str]:
    """The texts of the pages by the names of their files.

    Args:
      directory: of a run whose rounds are done, or of an export.
      report: of the run.

    Raises:
      ValueError: if a record in the directory is damaged.
    """
    from dpfl.reporting import audit_page, gan_page, plots, privacy_page  # Loads matplotlib.

    curves = plots.TRAINING if (directory / plots.TRAINING).exists() else None
    found = archive.pages(directory, report)
    found[run_files.HTML_REPORT] = privacy_page.render(report, curves=curves)
    if report.measured is not None:
        scores = Scores.load(directory / AUDIT)
        found[run_files.AUDIT_PAGE] = audit_page.render(scores, report.measured)
    journal = archive.read_journal(directory)
    if journal is not None and isinstance(recorded_settings.of_state(journal.state), GanConfig):
        texts = recorded_settings.flags_of(journal.state) or {}
        scale = recorded_settings.with_flags(ScaleConfig(), texts)
        scaled = scale.scaled_up(report.plan, report.accountant)
        found[run_files.GAN_REPORT] = gan_page.render(report, scaled)
    return found
