"""Which images a generator is trained on: criteria of labels, predictions and ink."""

import dataclasses
from typing import ClassVar

from dpfl._settings import setting
from dpfl.tasks.selection_config import SelectionConfig

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
        1, 'Clients with fewer selected images are left out.', minimum=1
    )
    selection_model: str | None = setting(
        None,
        'Classifier whose predictions the criteria compare: the directory of a study of '
        'debug_images, or of a run of dpfl train on other clients, or a SavedModel that maps '
        'images 28 x 28 to 62 logits or probabilities. It must not have learned from these '
        'clients. The guarantee of this run does not cover it.',
    )
