"""Clients and sentences of which only a selection is trained on ([Augenstein20], section 2.1).

A criterion compares a measure, which a device computes on its own data, with a number. Each client
decides by its own data alone, and the decision stays with it. So its update is a function of its
own data, as without a selection, and the guarantee is the same.
"""

import dataclasses
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpfl import errors
from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError
from dpfl.tasks import federated_task
from dpfl.tasks.federated_task import FederatedTask
from dpfl.tasks.text.tokenization import EOS_ID, OOV_ID, PAD_ID

_RELATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    '<=': operator.le,
    '>=': operator.ge,
    '<': operator.lt,
    '>': operator.gt,
}
# Measures that need a model, measures of a sentence, and measures of all sentences of a client.
_OF_MODEL = ('loss', 'accuracy')
_MEASURES = ('length', 'oov_rate', *_OF_MODEL)
_CLIENT_MEASURES = (*_MEASURES, 'sentences')
_FORM = re.compile(r'\s*(\w+)\s*(<=|>=|<|>)\s*(\S+)\s*')
# Examples of a client that are read at a time.
_ROWS = 256


@dataclasses.dataclass(frozen=True)
class Criterion:
    """A measure compared with a number.

    Attributes:
      measure: name of the measure.
      relation: '<', '<=', '>' or '>='.
      bound: the number.
    """

    measure: str
    relation: str
    bound: float

    def holds(self, values: Any) -> Any:
        """Whether values of the measure meet the criterion, elementwise; NaN does not."""
        return _RELATIONS[self.relation](values, self.bound)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionConfig(Settings):
    """Clients and sentences to train on, chosen by what each device can compute for itself.

    A generative model of the selected data shows what is in them, without anyone looking at them
    ([Augenstein20], section 2.1).
    """

    select_examples: tuple[str, ...] = setting(
        (),
        'Train on the sentences that meet all of these criteria, such as oov_rate>=0.2,length<=5. '
        'Measures: length (words), oov_rate (share of words outside the vocabulary), and, with '
        '--selection_model, loss (nats per token) and accuracy (of the words of the vocabulary).',
    )
    select_clients: tuple[str, ...] = setting(
        (),
        'Train on the clients that meet all of these criteria. The measures are those of '
        '--select_examples over all sentences of a client (length is the mean), and sentences, '
        'their number.',
    )
    selection_model: str | None = setting(
        None,
        'Language model whose loss and accuracy the criteria compare: as --warm_start, with the '
        'vocabulary of this run. The guarantee of this run does not cover it.',
    )

    @property
    def is_given(self) -> bool:
        """Whether anything is selected."""
        return bool(self.select_examples or self.select_clients)

    @property
    def of_examples(self) -> tuple[Criterion, ...]:
        """The criteria of examples."""
        return self._criteria('select_examples', _MEASURES)

    @property
    def of_clients(self) -> tuple[Criterion, ...]:
        """The criteria of clients."""
        return self._criteria('select_clients', _CLIENT_MEASURES)

    def check(self) -> None:
        """Checks the criteria, and that a model is given if, and only if, they need one."""
        criteria = (*self.of_examples, *self.of_clients)
        needing = [criterion for criterion in criteria if criterion.measure in _OF_MODEL]
        if needing and self.selection_model is None:
            name = 'select_examples' if needing[0] in self.of_examples else 'select_clients'
            raise self._refused(name, f'{needing[0].measure} needs selection_model')
        if self.selection_model is not None and not needing:
            raise ArgumentError(
                'selection_model', self.selection_model, 'needs a criterion of loss or accuracy'
            )
        self.require_possible({'oov_rate': 1.0, 'accuracy': 1.0})

    def require_possible(self, most: Mapping[str, float]) -> None:
        """Refuses criteria that no value of their measure meets, such as oov_rate>1.

        Args:
          most: largest value of each measure that has one. None is below 0.
        """
        for name in ('select_examples', 'select_clients'):
            criteria = self._criteria(name, _CLIENT_MEASURES)
            for measure in dict.fromkeys(criterion.measure for criterion in criteria):
                low, is_above = 0.0, False
                high, is_reached = most.get(measure, math.inf), True
                for each in criteria:
                    if each.measure == measure and '>' in each.relation:
                        low, is_above = max((low, is_above), (each.bound, each.relation == '>'))
                    elif each.measure == measure:
                        high, is_reached = min(
                            (high, is_reached), (each.bound, each.relation == '<=')
                        )
                if low > high or low == high and (is_above or not is_reached):
                    raise self._refused(name, f'selects nothing: no {measure} meets it')

    def remarks(self) -> tuple[str, ...]:
        """What the report says about the selection, in sentences."""
        if not self.is_given:
            return ()
        parts = []
        if self.select_clients:
            parts.append(f'clients with {" and ".join(self.select_clients)}')
        if self.select_examples:
            parts.append(f'sentences with {" and ".join(self.select_examples)}')
        return (
            f'Selection: the model is trained on {", of ".join(parts)} only. Each client applies '
            'the criteria to its own data. A client without selected data takes part with an '
            'update of zero, so the selection takes nothing from the guarantee, which is about all '
            'clients.',
        )

    def not_covered(self) -> tuple[str, ...]:
        """The sentence about a model that selects what is trained on; empty without one."""
        if self.selection_model is None:
            return ()
        return (
            'The model that selects clients or sentences: what it was trained on, unless its own '
            'guarantee is added.',
        )

    def _criteria(self, setting_name: str, measures: tuple[str, ...]) -> tuple[Criterion, ...]:
        """The criteria of a setting, which may compare some measures."""
        return tuple(
            self._criterion(setting_name, text, measures) for text in getattr(self, setting_name)
        )

    def _criterion(self, setting_name: str, text: str, measures: tuple[str, ...]) -> Criterion:
        form = _FORM.fullmatch(text)
        if form is None:
            raise self._refused(
                setting_name,
                f'{text!r} must be a measure, one of < <= > >=, and a number',
            )
        measure, relation, number = form.groups()
        if measure not in measures:
            raise self._refused(setting_name, f'{measure} must be one of {", ".join(measures)}')
        try:
            bound = float(number)
        except ValueError:
            bound = math.nan
        if not math.isfinite(bound):
            raise self._refused(setting_name, f'{number} must be a finite number')
        return Criterion(measure, relation, bound)

    def _refused(self, setting_name: str, reason: str) -> ArgumentError:
        return ArgumentError(setting_name, ','.join(getattr(self, setting_name)), reason)


# Maps inputs and targets, int32 [N, L] both, to the sum of the cross entropies of the targets that
# are not padding, in nats, and to the number of right predictions of words of the vocabulary,
# float64 [N] both.
Scores = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Measured:
    """The measures of the sentences of a client: quotients, which are not a number for 0 / 0.

    Attributes:
      parts: numerators and denominators by measure, arrays [examples].
      num_examples: number of the examples.
    """

    parts: Mapping[str, tuple[np.ndarray, np.ndarray]]
    num_examples: int

    def of_examples(self, name: str) -> np.ndarray:
        """A measure of each example, float64 [examples]."""
        return _quotient(*self.parts[name])

    def of_client(self, name: str) -> Any:
        """A measure of all examples together: the quotient of the sums, or their number."""
        if name == 'sentences':
            return self.num_examples
        above, below = self.parts[name]
        return _quotient(above.sum(), below.sum())

    def chosen(
        self, of_examples: Sequence[Criterion], of_clients: Sequence[Criterion]
    ) -> np.ndarray:
        """Which examples meet the criteria, bool [examples]; none if the client does not."""
        is_met = np.ones(self.num_examples, bool)
        for criterion in of_examples:
            is_met &= criterion.holds(self.of_examples(criterion.measure))
        for criterion in of_clients:
            is_met &= criterion.holds(self.of_client(criterion.measure))
        return is_met


def _quotient(above: Any, below: Any) -> np.ndarray:
    above, below = np.asarray(above, np.float64), np.asarray(below, np.float64)
    return np.divide(above, below, out=np.full(above.shape, np.nan), where=below > 0)


def of_sentences(x: np.ndarray, y: np.ndarray, scores: Scores | None) -> Measured:
    """Measures sentences.

    Args:
      x, y: inputs and targets, int32 [N, L].
      scores: the model; without one there is neither `loss` nor `accuracy`.
    """
    targets = y != PAD_ID
    words, unknown = (targets & (y != EOS_ID)).sum(axis=1), (y == OOV_ID).sum(axis=1)
    parts = {'length': (words, np.ones(len(y))), 'oov_rate': (unknown, words)}
    if scores is not None:
        loss, right = scores(x, y)
        parts |= {'loss': (loss, targets.sum(axis=1)), 'accuracy': (right, words - unknown)}
    return Measured(parts, len(y))


def select(
    config: SelectionConfig, task: FederatedTask, model: Scores | None = None
) -> FederatedTask:
    """A task that trains on the selected clients and examples; other clients stay as they are.

    Args:
      config: the criteria.
      task: the task with all examples.
      model: that of the criteria.

    Raises:
      ArgumentError: if criteria need a model and there is none.
    """
    if not config.is_given:
        return task
    if config.selection_model is not None and model is None:
        raise errors.ArgumentError('model', errors.NOT_SHOWN, 'must be given: criteria need it')
    of_examples, of_clients = config.of_examples, config.of_clients

    def selected(
        client: int, batch_size: int, epochs: int = 1, max_batches: int | None = None
    ) -> Sequence[Any]:
        parts = task.client_batches(client, _ROWS, 1, None)
        if not parts:
            return []
        examples = federated_task.pooled(parts)
        measured = of_sentences(examples['x'], examples['y'], model)
        chosen = measured.chosen(of_examples, of_clients)
        kept = {name: array[chosen] for name, array in examples.items()}
        return federated_task.batches(kept, batch_size, epochs, max_batches)

    return dataclasses.replace(
        task, client_batches=selected, not_covered=(*task.not_covered, *config.not_covered())
    )
