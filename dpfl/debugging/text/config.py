"""Configuration of the study: inspections, models, and faults. No TensorFlow."""

import dataclasses
from collections.abc import Sequence

from dpfl._settings import Settings, setting
from dpfl.debugging.text import faults
from dpfl.errors import NOT_SHOWN, ArgumentError
from dpfl.simulation.training import TrainConfig
from dpfl.tasks.config import WORD_MODELS, TaskConfig
from dpfl.tasks.selection import SelectionConfig

WORD, CHAR = 'word', 'char'
KINDS = (WORD, CHAR)
CHAR_MODELS = ('char_cifg_256', 'char_small', 'char_tiny')
_INSPECTED = ('T1', 'T2', 'T3', 'T4', 'T5', 'T6')
# These need the model that is debugged.
_MODEL_TASKS = ('T2', 'T4', 'T5', 'T6')
# What is selected, by which bound, and the generators of what is predicted badly and of the rest.
_PARTS = {
    'T2': (
        'select_examples',
        'wrong_accuracy',
        ('wrong', 'sentences that are predicted badly'),
        ('right', 'sentences that are predicted well'),
    ),
    'T4': (
        'select_clients',
        'poor_accuracy',
        ('poor', 'clients for whom the model does badly'),
        ('good', 'clients for whom the model does well'),
    ),
}
_SHARE = 0.1
# Settings of a task that have no use here: examples are sentences and words of all clients.
NOT_OF_TASK = ('packing', 'client_min_tokens', 'language_size')
# Settings of a training that the study makes itself, or has no use for.
NOT_OF_TRAINING = (
    *TaskConfig().flat(),
    'clip_norm',
    'client_update',
    'client_epochs',
    'release_train_metrics',
    'secagg',
    'secagg_scale',
    'secagg_bits',
    'model_dimension',
)


@dataclasses.dataclass(frozen=True)
class Generator:
    """A generative model of the study.

    Attributes:
      name: its name, and that of its folder.
      kind: 'word' for sentences, 'char' for the words outside the vocabulary.
      of_what: its training data, in words.
      selection: sentences or clients that it learns from.
      bound: setting that the selection depends on; None for all of the text.
    """

    name: str
    kind: str
    of_what: str
    selection: SelectionConfig = SelectionConfig()
    bound: str | None = None


@dataclasses.dataclass(frozen=True)
class Case:
    """The text that the generators learn from.

    Attributes:
      fault: fault that is injected, one of `faults.NAMES`; None for the text as it is.
      share: share of the sentences, or of the clients, that it affects.
    """

    fault: str | None = None
    share: float = 0.0

    @property
    def name(self) -> str:
        """Name for people."""
        return f'{self.fault}, {100 * self.share:.15g}%' if self.fault else 'as it is'

    @property
    def folder(self) -> str:
        """Folder of its generators."""
        return f'{self.fault}_{_exact(self.share)}' if self.fault else 'as_it_is'


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyConfig(Settings):
    """What is inspected, the models that stand for the text, and faults to try it with."""

    inspect: tuple[str, ...] = setting(
        ('T1', 'T3'),
        'What to inspect, as in table 1 of [Augenstein20]. T1: all sentences. T2: the sentences '
        'that --primary_model predicts badly, against the others. T3: the words outside the '
        'vocabulary. T4: the clients for whom it does badly, against the others. T5: sentences '
        'for people to label, and what a model learns from them. T6: sentences that are more '
        'probable in the private text than under --primary_model.',
        choices=_INSPECTED,
    )
    primary_model: str | None = setting(
        None,
        'Word model to debug: a SavedModel, or the directory of a run, with the vocabulary of the '
        'task. The guarantees of the generators do not cover it.',
    )
    inject: tuple[str, ...] = setting(
        (),
        'Faults to damage the text with, to see whether they are found: '
        f'{", ".join(faults.NAMES)}. The reference is the text as it is.',
        choices=faults.NAMES,
    )
    inject_share: tuple[float, ...] = setting(
        (),
        'Shares of the sentences, or with duplicated_client of the clients, that a fault affects; '
        f'with --inject {_SHARE:g} by default. Each fault with each share is a case of its own.',
        above=0,
        maximum=1,
        needs='inject',
    )
    wrong_accuracy: float = setting(
        0.1,
        'T2: a sentence is predicted badly if the model predicts at most this share of its known '
        'words.',
        minimum=0,
        below=1,
    )
    poor_accuracy: float = setting(
        0.15,
        'T4: the model does badly for a client if it predicts at most this share of its known '
        'words.',
        minimum=0,
        below=1,
    )
    word_model: str = setting(
        'micro', 'The word model, one of those of train --model.', choices=WORD_MODELS
    )
    char_model: str = setting(
        'char_tiny',
        'The character model; [Augenstein20] uses char_cifg_256.',
        choices=CHAR_MODELS,
    )
    word_length: int = setting(
        24, 'Bytes of a word, including its end; longer words are cut.', minimum=2
    )
    word_clip_norm: float = setting(0.2, 'Clip norm of the word model.', above=0)
    char_clip_norm: float = setting(0.1, 'Clip norm of the character model.', above=0)
    samples: int = setting(
        20_000,
        'Number of sentences or words that each model writes (100000 in [Augenstein20]).',
        minimum=100,
    )
    top: int = setting(20, 'Number of words in a ranking.', minimum=1)

    def check(self) -> None:
        """Checks that the lists have no doubles, and that inspections have the model they need."""
        for name in ('inspect', 'inject', 'inject_share'):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ArgumentError(name, _shown(values), 'must be different values')
        if not self.inspect:
            raise ArgumentError('inspect', NOT_SHOWN, f'must be some of {", ".join(_INSPECTED)}')
        needing = [task for task in self.inspect if task in _MODEL_TASKS]
        if needing and self.primary_model is None:
            raise ArgumentError(
                'inspect', _shown(self.inspect), f'{needing[0]} needs primary_model'
            )
        if self.primary_model is not None and not needing:
            raise ArgumentError(
                'primary_model', self.primary_model, f'needs inspect with {", ".join(_MODEL_TASKS)}'
            )

    @property
    def cases(self) -> tuple[Case, ...]:
        """The text as it is, and with each fault at each share."""
        shares = self.inject_share or (_SHARE,)
        return (Case(), *(Case(fault, share) for fault in self.inject for share in shares))

    @property
    def generators(self) -> tuple[Generator, ...]:
        """The generators of each case."""
        generators: list[Generator] = []
        if {'T1', 'T5', 'T6'} & set(self.inspect):
            generators.append(Generator(WORD, WORD, 'all sentences'))
        if 'T3' in self.inspect:
            generators.append(Generator(CHAR, CHAR, 'the words outside the vocabulary'))
        return (*generators, *(generator for pair in self.pairs for generator in pair))

    @property
    def pairs(self) -> tuple[tuple[Generator, Generator], ...]:
        """Generators of a part of the text and of the rest, which are compared."""
        bounds = {'T2': self.wrong_accuracy, 'T4': self.poor_accuracy}
        return tuple(
            (
                self._part(task, f'<={bounds[task]!r}', *badly),
                self._part(task, f'>{bounds[task]!r}', *well),
            )
            for task, (_, _, badly, well) in _PARTS.items()
            if task in self.inspect
        )

    def _part(self, task: str, side: str, name: str, of_what: str) -> Generator:
        """The generator of what has an accuracy on one side of the bound of a task."""
        selected, bound, *_ = _PARTS[task]
        selection = SelectionConfig(
            selection_model=self.primary_model, **{selected: (f'accuracy{side}',)}
        )
        return Generator(name, WORD, of_what, selection, bound)

    def model(self, kind: str) -> str:
        """Name of the model of a kind, one of `KINDS`."""
        return self.word_model if kind == WORD else self.char_model

    def train_config(self, base: TrainConfig, kind: str) -> TrainConfig:
        """Training configuration of the model of a kind."""
        norm = self.word_clip_norm if kind == WORD else self.char_clip_norm
        return base.with_values({'clip_norm': norm})

    def made_from(self, generator: Generator, case: Case) -> dict[str, object]:
        """The inputs of a generator's task besides the text, by name."""
        values: dict[str, object] = {
            'kind': generator.kind,
            'model': self.model(generator.kind),
            'inject': case.fault,
            'inject_share': case.share,
        }
        if generator.kind == CHAR:
            values['word_length'] = self.word_length
        if generator.bound is not None:
            values['generator'] = generator.name
            values[generator.bound] = getattr(self, generator.bound)
        return values


def _shown(values: Sequence[object]) -> str:
    return ','.join(_exact(value) if isinstance(value, float) else str(value) for value in values)


def _exact(value: float) -> str:
    """A number with all of its digits: no other number has this text."""
    return repr(value).removesuffix('.0')
