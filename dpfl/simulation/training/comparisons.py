"""What a run is called, and what its accuracy and its loss are compared with."""

import math
from collections.abc import Sequence

from dpfl.simulation.training.config import MODELS, TrainConfig
from dpfl.tasks.config import IMAGE_TASKS
from dpfl.tasks.federated_task import FederatedTask
from dpfl.tasks.text import token_ids


def model_name(config: TrainConfig) -> str:
    """Name of the model that is trained; empty for a task of one's own."""
    names: Sequence[str] = MODELS[config.task.task]
    return config.task.model or (names[0] if names else '')


def uniform_loss(config: TrainConfig, language: tuple[str, Sequence[str]] | None) -> float | None:
    """Cross entropy of a model that finds every word, or every class, equally likely."""
    if language is not None:
        return math.log(len(language[1]) + token_ids.NUM_SPECIAL_TOKENS)
    if config.task.task in IMAGE_TASKS:
        from dpfl.tasks.images import image_batches

        return math.log(image_batches.NUM_CLASSES)
    return None


def references(config: TrainConfig, task: FederatedTask) -> dict[str, float]:
    """What a run's accuracy is compared with: known accuracies, and those of counting words."""
    counted = task.baselines(config.evaluation.eval_clients) if task.baselines else {}
    return {**counted, **task.reference_accuracies}
