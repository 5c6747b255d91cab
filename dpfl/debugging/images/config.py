"""Configuration of the study: its comparison and its classifier. No TensorFlow."""

import dataclasses

from dpfl._settings import Settings, setting
from dpfl.tasks.config import IMAGE_MODELS

_SELECTIONS = ('client', 'example')
PUBLIC, FIX = 'public', 'fix'
COMPARISONS = (PUBLIC, FIX)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrimaryConfig(Settings):
    """Training of the primary model, the classifier that runs on devices."""

    primary_model: str = setting(
        'small',
        'The classifier: small, cnn or tiny to train one on public images, or your own: the '
        'directory of a study, or of a run of dpfl train. It must not have learned from the '
        'clients.',
    )
    primary_clients: int = setting(
        1_000,
        'Number of held-out clients whose images are public; all of them if there are fewer. The '
        'classifier is trained on them, and generators for comparison.',
        minimum=1,
    )
    primary_steps: int = setting(
        2_500,
        'Number of batches of 64 that the classifier is trained on.',
        minimum=1,
        needs={'primary_model': IMAGE_MODELS},
    )
    primary_learning_rate: float = setting(
        0.004,
        'Learning rate of Adam in the first step of the classifier.',
        above=0,
        needs={'primary_model': IMAGE_MODELS},
    )

    @property
    def is_trained(self) -> bool:
        """Whether the classifier is trained by the study; otherwise it is read."""
        return self.primary_model in IMAGE_MODELS


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyConfig(Settings):
    """What the GANs are trained on, and what is measured on them."""

    selection: str = setting(
        'client',
        'What is selected by the accuracy of the classifier: clients ([Augenstein20], task T4) or '
        'examples (task T2).',
        choices=_SELECTIONS,
    )
    compare: str = setting(
        PUBLIC,
        'What the generators of the selected data are compared with. public: generators of all '
        'clients and of public images, to find out what is wrong with the data as they are. fix: '
        'the same after the faults of --inject are fixed ([Augenstein20], section 6).',
        choices=COMPARISONS,
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
