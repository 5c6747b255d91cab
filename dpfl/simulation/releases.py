"""The rounds that a run has released: its ledger and its participation log, kept in step."""

import collections
import logging
import math
from typing import Any

from dpfl import errors
from dpfl.accounting.records import archive, ledger_lines
from dpfl.accounting.reports import history
from dpfl.participation import ParticipationLog
from dpfl.simulation import checkpoint, data_digest, outputs
from dpfl.simulation import ledger as ledger_lib
from dpfl.simulation import state as state_lib
from dpfl.simulation.experiment import Experiment

_log = logging.getLogger(__name__)
# A cohort is far from the plan if it is under half or over one and a half times the planned one,
# and if that is no accident of Poisson sampling.
_FAR = 0.5
_DEVIATIONS = 4
_FAR_COHORT = (
    'round %d: %d clients came, %d are planned (clients_per_round). The noised sum is divided by '
    'the planned number, so the mean update is %.2g times that of a full cohort. Said once'
)


class Releases:
    """Ledger and participation log of a run.

    Each round is recorded before it is released, so neither ever has fewer rounds than were
    released. Rounds that are in the ledger but not in the checkpoint are run again: `record` then
    checks that the release is the same.

    Args:
      experiment: the run.
      directory: directory of the run.
      start: the checkpoint that the run continues from; None for a new run.

    Raises:
      RunError: if checkpoint, ledger and sampler do not belong to the same run, or if a file cannot
        be read or written.
    """

    def __init__(
        self,
        experiment: Experiment,
        directory: outputs.RunDirectory,
        start: checkpoint.Checkpoint | None,
    ):
        self._sampler = experiment.sampler
        self._path = directory.path / archive.LEDGER
        self._ledger = ledger_lib.Ledger(self._path, experiment.record.digest())
        self._log = self._released(start)
        self._data_key = directory.data_key(is_new=start is None)
        storage = experiment.noise_storage
        self._is_supplied = storage is not None and storage.is_supplied
        # Data digests of the cohorts whose shards are ready, next round first: with the key of the
        # run, and without a key for noise that is drawn before the sum is known.
        self._data_digests: collections.deque[tuple[str, str]] = collections.deque()
        # The planned cohort where a mean over it is released; None once its size was mentioned.
        plan = experiment.plan
        self._planned = plan.clients_per_round if plan.estimator.kind == 'fixed' else None

    def _released(self, start: checkpoint.Checkpoint | None) -> ParticipationLog:
        """The log of all rounds in the ledger, including those after the checkpoint."""
        done = 0 if start is None else start.rounds
        if start is None and self._ledger.rounds:
            raise errors.RunError(
                f'{self._path}: has {self._ledger.rounds} rounds, and there is no checkpoint to '
                'continue from'
            )
        if self._ledger.rounds < done or (
            start is not None and self._ledger.position(done) != start.ledger
        ):
            raise errors.RunError(
                f'{self._path}: is not the ledger of the checkpoint (round {done})'
            )
        log = ParticipationLog(() if start is None else start.cohorts)
        for t in range(done, self._ledger.rounds):
            cohort: Any = self._sampler.cohort(t)
            if ledger_lines.cohort_digest(cohort) != self._ledger.cohort(t):
                raise errors.RunError(f'{self._path}: round {t} had another cohort')
            log.append(cohort)
        return log

    @property
    def extensions(self) -> tuple[history.Extension, ...]:
        """How the run went on with another plan, as in `archive.PlanRecord`."""
        return self._ledger.history

    @property
    def noise_key_digest(self) -> str | None:
        """Digest of the noise keys, as in `archive.PlanRecord`; None before the first round."""
        return self._ledger.noise_key_digest

    @property
    def rounds(self) -> int:
        """Number of rounds that were released, or were about to be."""
        return self._ledger.rounds

    def observe_data(self, clients: list[bytes]) -> None:
        """Keeps the digest of a cohort's data for `record`, made from the digest of each client.

        Called in the thread of the shards.
        """
        keyed = data_digest.of_digests(self._data_key, clients)
        # Two runs with one noise seed have the same noise, but not the same key of the digests.
        plain = data_digest.of_digests(b'', clients) if self._is_supplied else ''
        self._data_digests.append((keyed, plain))

    def record(self, t: int, state: Any) -> tuple[str, str, str]:
        """Records round `t`, counted from 0, before its release.

        Args:
          t: the round; `observe_data` has had the data of its cohort.
          state: state of the learning process at the start of the round.

        Returns:
          The intent of the round, from which its sum follows: digests of cohort, model and data. It
          says too much about the data to be written anywhere.

        Raises:
          LedgerError: if the round must not be released, see `ledger.Ledger.record`.
          StorageError: if the ledger cannot be written.
        """
        cohort: Any = self._sampler.cohort(t)
        keyed, plain = self._data_digests.popleft()
        entry = state_lib.ledger_entry(state, cohort, keyed)
        self._ledger.record(t, entry)
        if t == self._log.rounds:  # Otherwise the round is run again, and the log has it already.
            self._log.append(cohort)
        self._compare(t, len(cohort))
        return entry.cohort, entry.model, plain

    def _compare(self, t: int, size: int) -> None:
        """Warns once of a cohort that is far from the planned one."""
        planned = self._planned
        if planned is None:
            return
        if abs(size - planned) > max(_FAR * planned, _DEVIATIONS * math.sqrt(planned)):
            self._planned = None
            _log.warning(_FAR_COHORT, t + 1, size, planned, size / planned)

    def checkpoint(self, done: int) -> dict[str, Any]:
        """The fields `ledger` and `cohorts` of a checkpoint after `done` rounds."""
        return {
            'ledger': self._ledger.position(done),
            'cohorts': [self._log.cohort(t) for t in range(done)],
        }

    def log(self) -> ParticipationLog:
        """The participation log, with every round of the ledger."""
        # A signal can arrive after a round has entered the ledger and before it enters the log.
        for t in range(self._log.rounds, self._ledger.rounds):
            self._log.append(self._sampler.cohort(t))
        return self._log
