"""Which clients and examples a run trains on: criteria that a device computes on its own data."""

import dataclasses
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError

# The draw before training that finds the quantiles of criteria.
THRESHOLDS = 'thresholds'
# Measures that criteria of text compare: of one sentence, or of all sentences of a client together.
MEASURES = ('length', 'oov_rate', 'loss', 'accuracy')
CLIENT_MEASURES = (*MEASURES, 'sentences')
# These need a model.
OF_MODEL = frozenset({'loss', 'accuracy'})
_RELATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    '<=': operator.le,
    '>=': operator.ge,
    '<': operator.lt,
    '>': operator.gt,
}
_FORM = re.compile(r'\s*(\w+)\s*(<=|>=|<|>)\s*(\S+)\s*')
_QUANTILES = (
    'A threshold such as q0.25 is a quantile over all clients (of sentences: over one random '
    'sentence of each client). It was estimated privately before training, and the guarantee '
    'counts that.'
)


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionConfig(Settings):
    """Clients and examples to train on, chosen by what each device can compute for itself.

    A generative model of the selected data shows what is in them, without anyone looking at them
    ([Augenstein20], section 2.1).
    """

    # The measures of the data, those of them that need a model, and the word for examples.
    measures: ClassVar[tuple[str, ...]] = MEASURES
    client_measures: ClassVar[tuple[str, ...]] = CLIENT_MEASURES
    of_model: ClassVar[frozenset[str]] = OF_MODEL
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


# Of one image, and of all images of a client together.
IMAGE_MEASURES = ('label', 'predicted', 'accuracy', 'confidence', 'loss', 'ink')
IMAGE_CLIENT_MEASURES = ('accuracy', 'confidence', 'loss', 'ink', 'examples')


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageSelectionConfig(SelectionConfig):
    """Clients and images to train on, chosen by what each device can compute for itself."""

    measures: ClassVar[tuple[str, ...]] = IMAGE_MEASURES
    client_measures: ClassVar[tuple[str, ...]] = IMAGE_CLIENT_MEASURES
    of_model: ClassVar[frozenset[str]] = frozenset({'predicted', 'accuracy', 'confidence', 'loss'})
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
