"""Runs the study: trains the two models of each setting and evaluates what they write."""

import dataclasses
import pathlib
from collections.abc import Iterator

from dpfl.simulation.training import TrainConfig
from experiments.debugging.text import results, settings, training
from experiments.debugging.text.clients import OpenedText
from experiments.debugging.text.config import KINDS, StudyConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """A study.

    Attributes:
      config: What is compared.
      base: How the models are trained, except for their clip norms.
      opened: The text.
    """

    config: StudyConfig
    base: TrainConfig
    opened: OpenedText

    def run(
        self, directory: pathlib.Path, *, resume: bool, overwrite: bool
    ) -> Iterator[results.Setting]:
        """Runs the settings one after the other; the first is the one without the bug.

        Args:
          directory: Directory of the study. Each model is a run in a folder of it.
          resume: Keep models that are finished, and continue one that was interrupted.
          overwrite: Replace an earlier study in the directory.

        Raises:
          ArgumentError: If a value is not allowed.
          RunError: If a file cannot be read or written, or a run cannot be continued.
        """
        text, clean = self.opened.text(), None
        for rate in self.config.bug_rates:
            tasks = {kind: self._task(kind, rate, text) for kind in KINDS}
            trained = {
                kind: training.train_model(
                    self.config.train_config(self.base, kind),
                    task,
                    directory / f'joined_{rate:g}' / kind,
                    population=self.opened.population(self.base.sampling.population),
                    not_covered=text.not_covered,
                    made_from={
                        **self.opened.config.flat(),
                        **self.config.made_from(kind, rate),
                    },
                    resume=resume,
                    overwrite=overwrite,
                )
                for kind, task in tasks.items()
            }
            found = results.evaluate(
                rate,
                text,
                tasks,
                trained,
                clean,
                samples=self.config.samples,
                top=self.config.top,
                seed=self.base.seed,
            )
            clean = clean or found
            yield found

    def _task(self, kind: str, rate: float, text: settings.Text) -> settings.Task:
        return settings.task(
            kind,
            text,
            rate,
            model=self.config.model(kind),
            sentence_length=self.opened.config.text.sentence_length,
            word_length=self.config.word_length,
            eval_clients=self.base.evaluation.eval_clients,
            seed=self.base.seed,
        )
