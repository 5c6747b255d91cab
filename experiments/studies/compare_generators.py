r"""Compares what two generators write or draw, on one page ([Augenstein20], sections 4 to 6).

Example:
  python -m experiments.studies.compare_generators --a=runs/study/clean/word,runs/study/clean/char \
      --b=runs/study/faulty/word,runs/study/faulty/char --output_dir=runs/compared

Each side is one run or several of different kinds: a word model, a character model, a generator of
train_gan. Both sides have the same kinds, and word models the same vocabulary. The two sides can
also be given without flags: compare_generators runs/a runs/b --output_dir=runs/compared. The output
directory then has
- comparison.html: the traits of debug_text and debug_images of both sides with intervals, words
  that differ, sentences or sheets of images side by side, and the guarantees;
- comparison.json: the same numbers.

No data of clients are read; the classifier of images is trained on held-out (public) ones.
"""

import dataclasses
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpfl._settings import Settings, setting
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.debugging import diagnosis, page
from dpfl.debugging.differences import Difference, json_values
from dpfl.debugging.images import traits as image_traits
from dpfl.debugging.text import diagnosis as text_diagnosis
from dpfl.debugging.text import traits as text_traits
from dpfl.mechanisms import rounding
from dpfl.reporting import html_parts
from dpfl.reporting.html_parts import Cell
from experiments.studies.shared import files, finished_run, generators
from experiments.studies.shared.finished_run import FinishedRun
from experiments.studies.shared.generators import Side


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparisonConfig(Settings):
    """The two sides, and how many samples of them are compared."""

    a: tuple[str, ...] = setting((), 'Directories of the runs of the first side, comma-separated.')
    b: tuple[str, ...] = setting((), 'Directories of the runs of the second side.')
    samples: int = setting(
        20_000,
        'Number of sentences, and of words of character models, that each side writes (100000 in '
        '[Augenstein20]).',
        minimum=100,
    )
    images: int = setting(1_000, 'Number of images that each side draws.', minimum=100)
    sentence_length: int | None = setting(
        None, 'Words of a sentence; longer ones are cut. By default as in training.', minimum=1
    )
    word_length: int = setting(
        24,
        'Bytes of a word of a character model, including its end; longer ones are cut.',
        minimum=2,
    )
    classifier_clients: int = setting(
        300,
        'Number of held-out clients on whose images the classifier of images is trained; these are '
        'public.',
        minimum=1,
    )
    classifier_steps: int = setting(
        600, 'Number of batches of 64 that it is trained on.', minimum=1
    )
    top: int = setting(20, 'Number of words that differ, at most.', minimum=1)
    seed: int = setting(0, 'Seed of all draws.', minimum=0, maximum=2**32)


_COMPARISON = SettingsFlags(ComparisonConfig)
_OUTPUT = SettingsFlags(
    output_flags.RunDirectoryConfig,
    only=('output_dir',),
    help={'output_dir': 'Directory for the page; files of an earlier comparison are replaced.'},
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)
_TRAITS: Mapping[str, diagnosis.Trait] = {**text_traits.ALL, **image_traits.ALL}
_KINDS = {'word': 'word model', 'char': 'character model', 'images': 'images'}
_PHRASES = 8


def main() -> None:
    """Checks the flags, compares the sides, writes the page and prints the verdict."""
    config = _COMPARISON.read()
    directory = output_flags.directory(_OUTPUT.read())
    for name in ('a', 'b'):
        command_line.required(config, name)
    with command_line.refusing_bad_values():
        sides = generators.open_side('a', config.a), generators.open_side('b', config.b)
        comparison = compare(sides, config)
    path = directory / 'comparison.html'
    files.write(path, comparison.render())
    values, text = comparison.to_dict(), f'{comparison.verdict}\n\n{path}'
    files.write(directory / 'comparison.json', json.dumps(values, allow_nan=False))
    output_flags.show(_FORMAT, values, text, allow_nan=False)


@dataclasses.dataclass(frozen=True)
class Kind:
    """Samples of the generators of one kind, of both sides.

    Attributes:
      traits: traits of the samples of a and of b.
      shown: the first samples side by side, as HTML.
      words: words whose shares of sentences differ clearly, of word models.
    """

    traits: tuple[diagnosis.Measures, diagnosis.Measures]
    shown: str
    words: tuple[Difference, ...] = ()


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two sides, compared.

    Attributes:
      sides: the generators of a and b by kind.
      kinds: samples by kind of generator.
      guarantees: guarantees of the runs together, from `generators.guarantees`.
    """

    sides: tuple[Side, Side]
    kinds: Mapping[str, Kind]
    guarantees: list[dict[str, Any]]

    @property
    def differences(self) -> dict[str, tuple[Difference, ...]]:
        """Of all traits by kind, a minus b, with Holm's correction over all of them."""
        contrasts = {
            name: diagnosis.Contrast(*(diagnosis.Generated(name, traits) for traits in kind.traits))
            for name, kind in self.kinds.items()
        }
        return diagnosis.compare(contrasts, _TRAITS)

    @property
    def clear(self) -> list[Difference]:
        """The differences that are clear and large enough to count, the surest first."""
        found = [
            each
            for compared in self.differences.values()
            for each in compared
            if each.is_clear(text_diagnosis.ALPHA, _TRAITS[each.name].least_from(each.second))
        ]
        return sorted(found, key=lambda each: each.adjusted)

    @property
    def verdict(self) -> str:
        """Whether the sides differ, and in what."""
        clear = [_in_words(each) for each in self.clear]
        words = [each.name for kind in self.kinds.values() for each in kind.words]
        if words:
            clear.append(f'how often they write {", ".join(words)}')
        if clear:
            return f'Differs clearly: {"; ".join(clear)}.'
        reasons = (generators.unlearned(each) for side in self.sides for each in side.values())
        if unlearned := dict.fromkeys(reason for reason in reasons if reason is not None):
            return f'Cannot tell: {"; ".join(unlearned)}.'
        return f'No clear difference in {sum(map(len, self.differences.values()))} traits.'

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {
            'verdict': self.verdict,
            'clear': [each.name for each in self.clear],
            'a': [generators.to_dict(each) for each in self.sides[0].values()],
            'b': [generators.to_dict(each) for each in self.sides[1].values()],
            'guarantees': self.guarantees,
            'traits': json_values(self.differences),
            'words': json_values([each for kind in self.kinds.values() for each in kind.words]),
        }

    def render(self) -> str:
        """The page as HTML."""
        names = {each.name for each in self.clear}
        told = 'bad' if self.verdict.startswith('Differs') else 'unsure'
        return page.document(
            'Two generators compared',
            'What two generators write',
            [
                ('The two sides', _sides(self.sides)),
                *(
                    (
                        f'{_KINDS[name].capitalize()}: traits of a and, as the reference, of b',
                        page.differences(compared, _TRAITS, names)
                        + (page.words(self.kinds[name].words) if name == 'word' else '')
                        + self.kinds[name].shown,
                    )
                    for name, compared in self.differences.items()
                ),
                ('Privacy', _privacy(self)),
                ('How it is decided', _METHOD),
            ],
            lead=f'<p class="{told}"><strong>{html.escape(self.verdict)}</strong></p>',
        )


_METHOD = html_parts.note(
    'A difference is clear if its p-value, after Holm’s correction over all traits of the page, is '
    f'at most {text_diagnosis.ALPHA:g}, and if it is large enough to count. Intervals and p-values '
    'allow for how two trainings on equal data differ, as in debug_text and debug_images. Those '
    'allowances were measured on other data: train one side again with another seed and compare '
    'the two.'
)


def _in_words(difference: Difference) -> str:
    trait = _TRAITS[difference.name]
    first, second = trait.shown(difference.first), trait.shown(difference.second)
    return f'{trait.meaning}, {first} in a and {second} in b'


def compare(sides: tuple[Side, Side], config: ComparisonConfig) -> Comparison:
    """Compares two sides.

    Raises:
      ArgumentError: if they cannot be compared; it names `b`.
      RunError: if a file cannot be read.
      DataError: if the data of the classifier cannot be read.
    """
    generators.check_pair(*sides)
    sample = {
        finished_run.WORD: _sentences,
        finished_run.CHAR: _unknown_words,
        finished_run.IMAGES: _images,
    }
    kinds = {name: sample[name]((sides[0][name], sides[1][name]), config) for name in sides[0]}
    return Comparison(sides, kinds, generators.guarantees(sides))


def _drawn(pair: tuple[FinishedRun, FinishedRun], special: Any, length: int, config) -> list:
    """Token ids [samples, length] that each generator of a pair writes, with seeds of their own."""
    from dpfl.tasks.text.models import generation

    return [
        generation.sample(
            generator.model.architecture,
            generator.weights,
            special,
            count=config.samples,
            length=length,
            seed=2 * config.seed + number,
        ).tokens
        for number, generator in enumerate(pair)
    ]


def _side_by_side(written: Iterable[Sequence[str]]) -> str:
    return html_parts.table(
        ['written by a', 'written by b'], zip(*written, strict=True), kind='words'
    )


def _sentences(pair: tuple[FinishedRun, FinishedRun], config: ComparisonConfig) -> Kind:
    from dpfl.tasks.text import tokenization
    from dpfl.tasks.text.models import generation

    trained = max(map(generators.sentence_length, pair))
    words = pair[0].vocabulary
    first, second = _drawn(pair, generation.WORDS, config.sentence_length or trained or 20, config)
    phrases = (tokenization.decode_sentences(each[:_PHRASES], words) for each in (first, second))
    return Kind(
        (text_traits.of_sentences(first, words), text_traits.of_sentences(second, words)),
        _side_by_side(phrases)
        + html_parts.note('The first sentences that were drawn, not a choice.'),
        text_diagnosis.words_that_differ(first, second, words, config.top),
    )


def _unknown_words(pair: tuple[FinishedRun, FinishedRun], config: ComparisonConfig) -> Kind:
    from dpfl.tasks.text import tokenization
    from dpfl.tasks.text.models import generation

    first, second = _drawn(pair, generation.BYTES, config.word_length, config)
    words = (tokenization.decode_words(each[:_PHRASES]) for each in (first, second))
    return Kind((text_traits.of_words(first), text_traits.of_words(second)), _side_by_side(words))


def _images(pair: tuple[FinishedRun, FinishedRun], config: ComparisonConfig) -> Kind:
    infer = _classifier(pair[0], config)
    draw = [generator.image_sampler() for generator in pair]
    # Sheets have the same inputs; the measures have other ones, so that samples are independent.
    first, second = (
        each(config.images, 2 * config.seed + number) for number, each in enumerate(draw)
    )
    sheets = ''.join(
        html_parts.sheet(each(html_parts.SHEET_IMAGES, 2 * config.seed), f'drawn by {name}')
        for name, each in zip('ab', draw, strict=True)
    )
    note = html_parts.note('Both sheets have the same random inputs, and are not a choice.')
    return Kind(
        (image_traits.measure(first, infer), image_traits.measure(second, infer)),
        f'<div class="sheets">{sheets}</div>\n{note}',
    )


def _classifier(generator: FinishedRun, config: ComparisonConfig) -> image_traits.Infer:
    """A classifier of images of held-out clients of the task of a generator."""
    from dpfl.tasks.images import classifiers

    pixels, labels = generator.image_clients().heldout_examples(config.classifier_clients)
    files.tell(f'Trains a classifier on {len(labels):,} public images')
    weights = classifiers.train_centrally(
        'small',
        pixels,
        labels,
        steps=config.classifier_steps,
        seed=config.seed,
    )
    return classifiers.of_weights('small', weights)


def _sides(sides: tuple[Side, Side]) -> str:
    """A column for each generator, so that the table fits on narrow screens."""
    named = [(name, each) for name, side in zip('ab', sides, strict=True) for each in side.values()]
    values = [generators.to_dict(generator) for _, generator in named]
    shown = {
        'run': '{directory}',
        'task': '{task}',
        'model': '{model}',
        'parameters': '{parameters:,}',
        'rounds': '{rounds:,}',
        'clients per round': '{clients_per_round:,}',
        'mechanism': '{mechanism}',
        'clip norm': '{clip_norm:g}',
        'noise multiplier': '{noise_multiplier:.4g}',
        'seed': '{seed}',
    }
    rows = [
        [Cell(name, 'text'), *(form.format(**value) for value in values)]
        for name, form in shown.items()
    ]
    accuracies = [
        '–' if value['accuracy'] is None else f'{100 * value["accuracy"]:.1f} %' for value in values
    ]
    rows += [
        [Cell('accuracy (images: of the discriminator)', 'text'), *accuracies],
        [Cell('delta', 'text'), *(rounding.shown_delta(value['delta']) for value in values)],
        [Cell('epsilon', 'text'), *(page.epsilon(value['epsilon']) for value in values)],
    ]
    names = [Cell('', 'text'), *(f'{name}: {_KINDS[generator.kind]}' for name, generator in named)]
    return html_parts.table(names, rows)


def _privacy(comparison: Comparison) -> str:
    names = {'a': 'all runs of a', 'b': 'all runs of b', 'both': 'all runs of a and b'}
    rows = [
        [
            Cell(f'{names[row["of"]]}, for a client of all', 'text'),
            str(row['runs']),
            'none' if row['remark'] not in ('', 'infinite') else page.epsilon(row['epsilon']),
            rounding.shown_delta(row['delta']),
            Cell(row['remark'] if row['remark'] != 'infinite' else '', 'text'),
        ]
        for row in comparison.guarantees
    ]
    generated = [generator for side in comparison.sides for generator in side.values()]
    is_seeded = any(generator.report.noise_is_seeded for generator in generated)
    columns = [Cell('guarantee of', 'text'), 'runs', 'epsilon', 'delta', Cell('remark', 'text')]
    return html_parts.table(columns, rows) + html_parts.note(
        'Runs that learn from the same client add up (composition). A client that only one side '
        'learned from has the guarantee of that side. Everything on this page is made from the '
        'generators and costs nothing more, except accuracy, which is that of held-out clients.'
        + (page.simulated('The noise comes') if is_seeded else '')
    )


if __name__ == '__main__':
    command_line.run(main, operands=('a', 'b'))
