"""Trains the two models of each setting, and lets them write."""

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
      config: what it compares.
      base: how its models are trained, except for their clip norms.
      opened: the text.
    """

    config: StudyConfig
    base: TrainConfig
    opened: OpenedText

    def run(
        self, directory: pathlib.Path, *, resume: bool, overwrite: bool
    ) -> Iterator[results.Setting]:
        """The settings, one after the other; the first is the clean one.

        Args:
          directory: of the study; each model is a run in a folder of it.
          resume: keep models that are finished, and continue one that was interrupted.
          overwrite: replace an earlier study there.

        Raises:
          ArgumentError: if a value is refused.
          RunError: if something cannot be read, written or continued.
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
