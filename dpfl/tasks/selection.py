"""Clients and examples of which only a selection is trained on ([Augenstein20], section 2.1).

A criterion compares a measure, which a device computes on its own data, with a number. Each client
decides by its own data alone, and the decision stays with it. So its update is a function of its
own data, as without a selection, and the guarantee is the same.
"""

import dataclasses
import itertools
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from dpfl import _progress, _random, errors
from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError
from dpfl.tasks import federated_task
from dpfl.tasks.federated_task import FederatedTask
from dpfl.tasks.text.tokenization import EOS_ID, OOV_ID, PAD_ID

# The draw before training that finds the quantiles of criteria.
THRESHOLDS = 'thresholds'
_RELATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    '<=': operator.le,
    '>=': operator.ge,
    '<': operator.lt,
    '>': operator.gt,
}
# Largest values of measures; without one there is no limit. None is below 0.
_MOST: Mapping[str, float] = {
    **dict.fromkeys(('oov_rate', 'accuracy', 'confidence', 'ink'), 1.0),
    **dict.fromkeys(('label', 'predicted'), 61.0),
}
_FORM = re.compile(r'\s*(\w+)\s*(<=|>=|<|>)\s*(\S+)\s*')
_QUANTILES = (
    'A threshold such as q0.25 is a quantile over all clients (of sentences: over one random '
    'sentence of each client). It was estimated privately before training, and the guarantee '
    'counts that.'
)
# Examples of a client that are read at a time.
_ROWS = 256


@dataclasses.dataclass(frozen=True)
class Criterion:
    """A measure compared with a number.

    Attributes:
      measure: name of the measure.
      relation: '<', '<=', '>' or '>='.
      bound: the number; not a number as long as the quantile is not known.
      quantile: which quantile of the clients' values the number is, strictly between 0 and 1; None
        for a number that is given.
      setting: name of the setting that has the criterion.
      text: its text there, such as loss>q0.9.
    """

    measure: str
    relation: str
    bound: float
    quantile: float | None = None
    setting: str = dataclasses.field(default='', compare=False)
    text: str = dataclasses.field(default='', compare=False)

    @property
    def name(self) -> str:
        """Setting and text, such as select_clients:loss>q0.9."""
        return f'{self.setting}:{self.text}'

    def at(self, thresholds: Mapping[str, float]) -> 'Criterion':
        """The criterion with the number that was found for its quantile, if it has one.

        Args:
          thresholds: the numbers, by `name`.
        """
        if self.quantile is None:
            return self
        return dataclasses.replace(self, bound=thresholds[self.name])

    def holds(self, values: Any) -> Any:
        """Whether values of the measure meet the criterion, elementwise; NaN does not.

        Raises:
          ArgumentError: if the quantile is not known.
        """
        if math.isnan(self.bound):
            raise ArgumentError('bound', f'q{self.quantile}', 'must be known')
        return _RELATIONS[self.relation](values, self.bound)


def _is_possible(criteria: Sequence[Criterion], most: float) -> bool:
    """Whether some number from 0 to `most` meets all criteria."""
    bounds = [criterion.bound for criterion in criteria]
    ends = {0.0, min(most, max(*bounds, 0.0) + 1)}
    known = sorted(ends | {bound for bound in bounds if 0 <= bound <= most})
    between = [(low + high) / 2 for low, high in itertools.pairwise(known)]
    return any(
        all(criterion.holds(value) for criterion in criteria) for value in (*known, *between)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionConfig(Settings):
    """Clients and examples to train on, chosen by what each device can compute for itself.

    A generative model of the selected data shows what is in them, without anyone looking at them
    ([Augenstein20], section 2.1).
    """

    # Measures that need a model, measures of one example, measures of all examples of a client
    # together, and the word for examples.
    of_model: ClassVar[tuple[str, ...]] = ('loss', 'accuracy')
    measures: ClassVar[tuple[str, ...]] = ('length', 'oov_rate', *of_model)
    client_measures: ClassVar[tuple[str, ...]] = (*measures, 'sentences')
    examples: ClassVar[str] = 'sentences'
    # Whether runs on such data can estimate quantiles.
    has_quantiles: ClassVar[bool] = True

    select_examples: tuple[str, ...] = setting(
        (),
        'Train on the sentences that meet all of these criteria, such as oov_rate>=0.2,length<=5. '
        'Measures: length (words), oov_rate (share of words outside the vocabulary), and, with '
        '--selection_model, loss (nats per token) and accuracy (of the words of the vocabulary). '
        'q0.9 in place of a number is the quantile over all clients, see --selection_epsilon.',
        draws=(THRESHOLDS,),
    )
    select_clients: tuple[str, ...] = setting(
        (),
        'Train on the clients that meet all of these criteria. The measures are those of '
        '--select_examples over all sentences of a client (length is the mean), and sentences, '
        'their number.',
        draws=(THRESHOLDS,),
    )
    select_min_examples: int = setting(
        1,
        'Clients with fewer selected sentences are left out.',
        minimum=1,
        needs={'select_examples': (), 'select_clients': ()},
        draws=(THRESHOLDS,),
    )
    selection_model: str | None = setting(
        None,
        'Language model whose loss and accuracy the criteria compare: as --warm_start, with the '
        'vocabulary of this run. The guarantee of this run does not cover it.',
        draws=(THRESHOLDS,),
    )
    selection_epsilon: float | None = setting(
        None,
        'Epsilon, at --delta, of estimating all quantiles that the criteria name, such as '
        'accuracy<q0.25. They are estimated once, before training; epsilon of the run is that of '
        'quantiles and training together (docs/own_data.md).',
        above=0,
        draws=(THRESHOLDS,),
    )

    @property
    def is_given(self) -> bool:
        """Whether anything is selected."""
        return bool(self.select_examples or self.select_clients)

    @property
    def of_examples(self) -> tuple[Criterion, ...]:
        """The criteria of examples."""
        return self._criteria('select_examples', self.measures)

    @property
    def of_clients(self) -> tuple[Criterion, ...]:
        """The criteria of clients."""
        return self._criteria('select_clients', self.client_measures)

    @property
    def quantiles(self) -> dict[str, Criterion]:
        """The criteria with a quantile, by name."""
        criteria = (*self.of_examples, *self.of_clients)
        return {
            criterion.name: criterion for criterion in criteria if criterion.quantile is not None
        }

    def check(self) -> None:
        """Checks the criteria, and that a model is given if, and only if, they need one."""
        for criterion in self.quantiles.values():
            if not self.has_quantiles:
                reason = f'must have numbers: quantiles of {self.examples} are not estimated'
                raise self._refused(criterion.setting, reason)
            if self.selection_epsilon is None:
                raise self._refused(criterion.setting, 'needs selection_epsilon')
        if self.selection_epsilon is not None and not self.quantiles:
            raise ArgumentError(
                'selection_epsilon', self.selection_epsilon, 'needs a criterion with a quantile'
            )
        criteria = (*self.of_examples, *self.of_clients)
        needing = [criterion for criterion in criteria if criterion.measure in self.of_model]
        if needing and self.selection_model is None:
            raise self._refused(needing[0].setting, f'{needing[0].measure} needs selection_model')
        if self.selection_model is not None and not needing:
            usable = ' or '.join(measure for measure in self.measures if measure in self.of_model)
            raise ArgumentError(
                'selection_model', self.selection_model, f'needs a criterion of {usable}'
            )
        self.require_possible(_MOST)

    def require_possible(self, most: Mapping[str, float]) -> None:
        """Refuses criteria that no value of their measure meets, such as oov_rate>1.

        Args:
          most: largest value of each measure that has one.
        """
        for criteria in (self.of_examples, self.of_clients):
            for measure in dict.fromkeys(criterion.measure for criterion in criteria):
                own = [c for c in criteria if c.measure == measure and c.quantile is None]
                if own and not _is_possible(own, most.get(measure, math.inf)):
                    texts = ','.join(criterion.text for criterion in own)
                    raise self._refused(own[0].setting, f'{texts} selects nothing')

    def remarks(self) -> tuple[str, ...]:
        """What the report says about the selection, in sentences."""
        if not self.is_given:
            return ()
        parts = []
        if self.select_clients:
            parts.append(f'clients with {" and ".join(self.select_clients)}')
        if self.select_examples:
            parts.append(f'{self.examples} with {" and ".join(self.select_examples)}')
        least = self.select_min_examples
        if least > 1:
            parts.append(f'clients with at least {least} selected {self.examples}')
        return (
            f'Selection: the model is trained on {", of ".join(parts)} only. Each client applies '
            'the criteria to its own data. A client without selected data takes part with an '
            'update of zero, so the selection takes nothing from the guarantee, which is about all '
            'clients.' + (f' {_QUANTILES}' if self.quantiles else ''),
        )

    def not_covered(self) -> tuple[str, ...]:
        """The sentence about a model that selects what is trained on; empty without one."""
        if self.selection_model is None:
            return ()
        return (
            f'The model that selects clients or {self.examples}: what it was trained '
            'on, unless its own guarantee is added.',
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
                f'{text!r} must be a measure, one of < <= > >=, and a number or a quantile',
            )
        measure, relation, number = form.groups()
        if measure not in measures:
            raise self._refused(setting_name, f'{measure} must be one of {", ".join(measures)}')
        is_quantile = number.startswith('q')
        try:
            value = float(number.removeprefix('q'))
        except ValueError:
            value = math.nan
        if is_quantile and not 0 < value < 1:
            reason = f'{number} must be a quantile such as q0.25, between q0 and q1'
            raise self._refused(setting_name, reason)
        if not math.isfinite(value):
            raise self._refused(setting_name, f'{number} must be a finite number')
        bound, quantile = (math.nan, value) if is_quantile else (value, None)
        return Criterion(measure, relation, bound, quantile, setting_name, text)

    def _refused(self, setting_name: str, reason: str) -> ArgumentError:
        return ArgumentError(setting_name, ','.join(getattr(self, setting_name)), reason)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageSelectionConfig(SelectionConfig):
    """Clients and images to train on, chosen by what each device can compute for itself."""

    of_model: ClassVar[tuple[str, ...]] = ('predicted', 'accuracy', 'confidence', 'loss')
    measures: ClassVar[tuple[str, ...]] = ('label', *of_model, 'ink')
    client_measures: ClassVar[tuple[str, ...]] = (*measures[2:], 'examples')
    examples: ClassVar[str] = 'images'
    has_quantiles: ClassVar[bool] = False

    select_examples: tuple[str, ...] = setting(
        (),
        'Train on the images that meet all of these criteria, such as label>=3,label<=3. Measures: '
        'label (0 to 61), ink (1 minus the mean intensity), and, with --selection_model, predicted '
        '(the class, 0 to 61), accuracy (1 if that is the label, else 0), confidence (probability '
        'of the predicted class) and loss (nats).',
    )
    select_clients: tuple[str, ...] = setting(
        (),
        'Train on the clients that meet all of these criteria, such as accuracy<0.5,examples>=5. '
        'Measures: examples, their number, and the means of accuracy, confidence, loss and ink '
        'over the images of the client.',
    )
    select_min_examples: int = setting(
        1,
        'Clients with fewer selected images are left out.',
        minimum=1,
        needs={'select_examples': (), 'select_clients': ()},
    )
    selection_model: str | None = setting(
        None,
        'Classifier whose predictions the criteria compare: the directory of a study of '
        'debug_images, or of a run of dpfl train on other clients, or a SavedModel that maps '
        'images 28 x 28 to 62 logits or probabilities. It must not have learned from these '
        'clients. The guarantee of this run does not cover it.',
    )


# Maps (client, batch size, epochs, limit on batches) to batches, as in `FederatedTask`.
ClientBatches = Callable[[int, int, int, int | None], Sequence[Any]]
# Maps inputs and targets, int32 [N, L] both, to the sum of the cross entropies of the targets that
# are not padding, in nats, and to the number of right predictions of words of the vocabulary,
# float64 [N] both.
Scores = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
# Maps pixels float32 [N, 28, 28] to class probabilities [N, 62].
Classify = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Measured:
    """The measures of the examples of a client: quotients, which are not a number for 0 / 0.

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
        if name in ('sentences', 'examples'):
            return self.num_examples
        above, below = self.parts[name]
        return _quotient(above.sum(), below.sum())

    def chosen(
        self, of_examples: Sequence[Criterion], of_clients: Sequence[Criterion], fewest: int
    ) -> np.ndarray:
        """Which examples meet the criteria, bool [examples]; none if the client does not.

        Args:
          of_examples, of_clients: the criteria.
          fewest: of fewer examples none is selected.
        """
        is_met = np.ones(self.num_examples, bool)
        for criterion in of_examples:
            is_met &= criterion.holds(self.of_examples(criterion.measure))
        for criterion in of_clients:
            is_met &= criterion.holds(self.of_client(criterion.measure))
        return is_met & (is_met.sum() >= fewest)


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


def of_images(x: np.ndarray, y: np.ndarray, classify: Classify | None) -> Measured:
    """Measures images.

    Args:
      x: values within [0, 1], paper is 1, float32 [N, 28, 28, 1].
      y: labels, int [N].
      classify: the model; without one there are only `label` and `ink`.
    """
    pixels = x[..., 0]
    values = {'label': y, 'ink': 1 - pixels.mean(axis=(1, 2), dtype=np.float64)}
    if classify is not None:
        probabilities = np.asarray(classify(pixels), np.float64)
        predicted = probabilities.argmax(axis=1)
        least = np.finfo(np.float32).tiny  # A loss stays finite.
        values |= {
            'predicted': predicted,
            'accuracy': predicted == y,
            'confidence': probabilities.max(axis=1),
            'loss': -np.log(np.maximum(probabilities[np.arange(len(y)), y], least)),
        }
    ones = np.ones(len(y))
    return Measured({name: (value, ones) for name, value in values.items()}, len(y))


def select(
    config: SelectionConfig,
    task: FederatedTask,
    model: Any = None,
    thresholds: Mapping[str, float] | None = None,
) -> FederatedTask:
    """A task that trains on the selected clients and examples; other clients stay as they are.

    Args:
      config: the criteria, of sentences or of images.
      task: the task with all examples.
      model: that of the criteria, as `of_sentences` or `of_images` takes it.
      thresholds: the numbers of `config.quantiles`.

    Raises:
      ArgumentError: if criteria need a model or a threshold and there is none.
    """
    if not config.is_given:
        return task
    if config.selection_model is not None and model is None:
        raise errors.ArgumentError('model', errors.NOT_SHOWN, 'must be given: criteria need it')
    if config.quantiles.keys() - (thresholds or {}).keys():
        raise errors.ArgumentError('thresholds', errors.NOT_SHOWN, 'must be given for quantiles')
    of_examples, of_clients = (
        [criterion.at(thresholds or {}) for criterion in criteria]
        for criteria in (config.of_examples, config.of_clients)
    )

    def selected(
        client: int, batch_size: int, epochs: int = 1, max_batches: int | None = None
    ) -> Sequence[Any]:
        examples, measured = _measured(config, task.client_batches, client, model)
        if measured is None:
            return []
        chosen = measured.chosen(of_examples, of_clients, config.select_min_examples)
        kept = {name: array[chosen] for name, array in examples.items()}
        return federated_task.batches(kept, batch_size, epochs, max_batches)

    return dataclasses.replace(
        task, client_batches=selected, not_covered=(*task.not_covered, *config.not_covered())
    )


def values_of_clients(
    config: SelectionConfig, batches: ClientBatches, model: Any, count: int, seed: int
) -> dict[str, np.ndarray]:
    """One value of each client for every quantile that the criteria name, float64 [clients].

    For a quantile of clients it is the client's measure, for one of sentences that of a random
    sentence with such a measure. It is not a number for a client that has none.

    Args:
      config, model: as in `select`.
      batches: those of all examples of a client.
      count: number of clients.
      seed: of the random sentences. Which one it is depends on the client's own text alone.
    """
    wanted = config.quantiles
    values = {name: np.full(count, np.nan) for name in wanted}
    clients = _progress.bar(range(count), desc='quantiles', unit='client', delay=2, leave=False)
    for client in clients:
        _, measured = _measured(config, batches, client, model)
        if measured is None:
            continue
        for place, (name, criterion) in enumerate(wanted.items()):
            if criterion.setting == 'select_clients':
                values[name][client] = measured.of_client(criterion.measure)
                continue
            known = measured.of_examples(criterion.measure)
            known = known[~np.isnan(known)]
            if known.size:
                random = _random.generator('select.quantile', seed, client, place)
                values[name][client] = known[random.integers(known.size)]
    return values


def _measured(
    config: SelectionConfig, batches: ClientBatches, client: int, model: Any
) -> tuple[dict[str, np.ndarray], Measured | None]:
    """The examples of a client, and their measures; None for a client without any."""
    parts = batches(client, _ROWS, 1, None)
    if not parts:
        return {}, None
    examples = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    measure = of_images if isinstance(config, ImageSelectionConfig) else of_sentences
    return examples, measure(examples['x'], examples['y'], model)
