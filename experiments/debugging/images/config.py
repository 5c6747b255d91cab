"""What the study compares, and how its classifier is trained, as values. No TensorFlow."""

import dataclasses

from dpfl._settings import Settings, setting
from dpfl.tasks.config import IMAGE_MODELS

SELECTIONS = ('client', 'example')


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrimaryConfig(Settings):
    """The primary model: a classifier that runs on devices."""

    primary_model: str = setting(
        'small', 'The classifier, as --model of train.', choices=IMAGE_MODELS
    )
    primary_clients: int = setting(
        1_000,
        'Held-out clients whose images the classifier is trained on; they are public.',
        minimum=1,
    )
    primary_steps: int = setting(
        2_500, 'Batches of 64 that the classifier is trained on.', minimum=1
    )
    primary_learning_rate: float = setting(
        0.004, "Adam's learning rate in the first step of the classifier.", above=0
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyConfig(Settings):
    """What the GANs are trained on, and what is read off them."""

    selection: str = setting(
        'client',
        'What is selected by the accuracy of the classifier: clients ([Augenstein20], task T4), or '
        'examples (task T2).',
        choices=SELECTIONS,
    )
    scale: float = setting(
        100.0,
        'Also report runs with this many times the clients per round and the noise multiplier, '
        'which have the same noise in the mean: 100 in [Augenstein20].',
    )
    realistic_population: int = setting(
        2_000_000, 'Number of clients of the larger runs of --scale.', minimum=1
    )
    samples: int = setting(512, 'Images that each generator makes for the measures.', minimum=2)
    primary: PrimaryConfig = PrimaryConfig()
