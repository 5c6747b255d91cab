"""Configuration of the study: what it compares, and its classifier. No TensorFlow."""

import dataclasses

from dpfl._settings import Settings, setting
from dpfl.tasks.config import IMAGE_MODELS

SELECTIONS = ('client', 'example')


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrimaryConfig(Settings):
    """Training of the primary model, the classifier that runs on devices."""

    primary_model: str = setting(
        'small', 'The classifier, one of those of train --model.', choices=IMAGE_MODELS
    )
    primary_clients: int = setting(
        1_000,
        'Number of held-out clients whose images the classifier is trained on; these are public.',
        minimum=1,
    )
    primary_steps: int = setting(
        2_500, 'Number of batches of 64 that the classifier is trained on.', minimum=1
    )
    primary_learning_rate: float = setting(
        0.004, 'Learning rate of Adam in the first step of the classifier.', above=0
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyConfig(Settings):
    """What the GANs are trained on, and what is measured on them."""

    selection: str = setting(
        'client',
        'What is selected by the accuracy of the classifier: clients ([Augenstein20], task T4) or '
        'examples (task T2).',
        choices=SELECTIONS,
    )
    scale: float = setting(
        100.0,
        'Also report the guarantees of runs with this many times the clients per round and the '
        'noise multiplier, which have the same noise in the mean: 100 in [Augenstein20].',
    )
    realistic_population: int = setting(
        2_000_000, 'Number of clients of the larger runs of --scale.', minimum=1
    )
    samples: int = setting(
        512, 'Number of images that each generator makes for the measures.', minimum=2
    )
    primary: PrimaryConfig = PrimaryConfig()
