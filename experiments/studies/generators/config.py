"""Settings of a comparison of two generators. No TensorFlow."""

import dataclasses

from dpfl._settings import Settings, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplesConfig(Settings):
    """What the generators write."""

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
    seed: int = setting(0, 'Seed of all draws.', minimum=0, maximum=2**32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig(Settings):
    """The classifier of public images that says which classes generated images show."""

    classifier_clients: int = setting(
        300,
        'Number of held-out clients whose images it is trained on; these are public.',
        minimum=1,
    )
    classifier_steps: int = setting(
        600, 'Number of batches of 64 that it is trained on; 0 for no class mix.', minimum=0
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparisonConfig(Settings):
    """How what they write is compared."""

    alpha: float = setting(
        0.05,
        'Chance that two sides that do not differ are called different, over everything that is '
        'compared.',
        above=0,
        below=1,
    )
    training_deviation: float = setting(
        0.15,
        'How much a model changes if it is trained again on equal data: standard deviation of the '
        'logarithm of the odds of a share above 5 %. Rarer events are allowed more, means a third. '
        '0 compares these very models, not what they learned from. '
        'docs/debug_text.md has '
        'measured values.',
        minimum=0,
    )
    orders: int = setting(
        3, 'Compare n-grams of 1 to this many words or bytes.', minimum=1, maximum=4
    )
    least_count: int = setting(
        20,
        'Compare n-grams that so many sentences (or words) of both sides together have.',
        minimum=1,
    )
    splits: int = setting(
        99, 'Random splits that show how far two samples are apart by chance.', minimum=19
    )
    top: int = setting(20, 'Number of words in a ranking, and of n-grams in a table.', minimum=1)
    drawn: SamplesConfig = SamplesConfig()
    classifier: ClassifierConfig = ClassifierConfig()
