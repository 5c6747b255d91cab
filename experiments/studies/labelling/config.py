"""Configuration of labelling: which images, who labels them, and what is trained. No TensorFlow."""

import dataclasses

from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError
from dpfl.tasks.config import IMAGE_MODELS


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelConfig(Settings):
    """Images for people to label, and the model that learns from their labels."""

    run_dir: str | None = setting(None, 'Directory of a finished run of train_gan.')
    images: int = setting(500, 'Number of images that the generator draws.', minimum=1)
    labels: str | None = setting(
        None, 'File of labels that label.html saved; the images are those of output_dir.'
    )
    rater: str | None = setting(
        None,
        'A classifier in place of people, for a simulation: small, cnn or tiny to train one on '
        'public images, or your own, as debug_images --primary_model.',
    )
    rater_confidence: float = setting(
        0.5,
        'The rater leaves an image without a label if it gives no class this probability.',
        minimum=0.0,
        maximum=1.0,
    )
    primary_model: str | None = setting(
        None,
        'A model to compare with, for example the one that runs on devices: the directory of a run '
        'or study, or a SavedModel.',
    )
    public_clients: int = setting(
        300,
        'Number of held-out clients whose images are public: the rater is trained on them, and a '
        'model to compare with.',
        minimum=1,
    )
    eval_clients: int = setting(
        100,
        'Number of further held-out clients on whose images the models are measured.',
        minimum=2,
    )
    model: str = setting(
        'small', 'The classifier that is trained on the labels.', choices=IMAGE_MODELS
    )
    steps: int = setting(1_000, 'Number of batches of 64 of each training.', minimum=1)
    learning_rate: float = setting(
        0.002, 'Learning rate of Adam in the first step of each training.', above=0
    )
    seed: int = setting(0, 'Seed of the images and of the trainings.', minimum=0, maximum=2**32)

    def check(self) -> None:
        """Checks that not both people and a classifier label."""
        if self.labels is not None and self.rater is not None:
            raise ArgumentError('rater', self.rater, 'must not be given with labels')
        given = self.rater_confidence != type(self).__dataclass_fields__['rater_confidence'].default
        if given and self.rater is None:
            raise ArgumentError('rater_confidence', self.rater_confidence, 'needs a rater')
