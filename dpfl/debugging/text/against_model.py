"""Tasks T5 and T6: learning from private sentences, and those that a model finds improbable.

Both start from the sentences that the generator of all sentences writes. They are made from a
private model, so they cost no further privacy.
"""

import dataclasses

import numpy as np

from dpfl.debugging.diagnosis import Contrast, Generated
from dpfl.debugging.differences import Mean
from dpfl.debugging.text import diagnosis, results, traits
from dpfl.debugging.text.config import WORD
from dpfl.tasks.text import tokenization
from dpfl.tasks.text.models import architectures, generation, saved_models
from dpfl.tasks.text.tokenization import BOS_ID, NUM_SPECIAL_TOKENS, PAD_ID

_SHOWN = 20
# How a model goes on learning from private sentences.
_EPOCHS, _BATCH_SIZE, _LEARNING_RATE = 1, 64, 1e-3


@dataclasses.dataclass(frozen=True)
class Ratios:
    """How much more probable private sentences are in the private text than under the model.

    Attributes:
      case: Name of the case.
      private: Mean log-likelihood ratio of sentences that the private generator writes, private
        against primary model, in nats per word or end.
      public: The same of sentences that the primary model writes.
      improbable: Sentences of the private generator with the highest ratios, each with its ratio.
    """

    case: str
    private: Mean
    public: Mean
    improbable: tuple[tuple[str, float], ...]


@dataclasses.dataclass(frozen=True)
class Learned:
    """Change of a model by learning from sentences that the private generator writes.

    Attributes:
      case: Name of the case.
      sentences: Number of sentences that it learned from.
      accuracy: Share of right predictions of known words of held-out clients, before and after.
      loss: Cross entropy of their words and ends, in nats, before and after.
      accuracy_gained: The difference of the accuracies, over sentences.
      loss_gained: The difference of the losses, over sentences.
    """

    case: str
    sentences: int
    accuracy: tuple[float, float]
    loss: tuple[float, float]
    accuracy_gained: Mean
    loss_gained: Mean


def ratios(
    case: results.CaseResult,
    primary: saved_models.LanguageModel,
    question: diagnosis.Question,
    *,
    top: int,
    seed: int,
) -> tuple[Ratios, results.Compared]:
    """T6: the likelihood ratio of a private generator against the primary model.

    Args:
      case: The output of the generator of all sentences, among others.
      primary: The model to debug.
      question: The fault, its share, and effects of faults.
      top: Number of words that are compared at most.
      seed: Seed of the sentences that the primary model writes.

    Returns:
      The ratios; and traits and words of the private sentences against those of the primary model.
    """
    assert primary.vocabulary is not None  # It has the vocabulary of the task.
    written = case.written[WORD]
    task, private = written.task, written.tokens
    public = generation.sample(
        primary.architecture,
        primary.weights,
        task.special,
        count=len(private),
        length=task.length,
        seed=seed,
    ).tokens

    def gained(tokens: np.ndarray) -> np.ndarray:
        """Log-likelihood ratios of sentences, [N]."""
        own = task.architecture, written.trained.weights
        first, second = (
            generation.log_probabilities(*model, task.special, tokens)
            for model in (own, (primary.architecture, primary.weights))
        )
        return first - second

    sizes = (private != PAD_ID).sum(axis=1)
    of_private, of_primary = gained(private), gained(public)
    per_token = np.where(sizes > traits.LONG, of_private / np.maximum(sizes, 1), -np.inf)
    texts = tokenization.decode_sentences(private, primary.vocabulary)
    improbable: dict[str, float] = {}
    for i in np.argsort(-per_token, kind='stable'):
        if len(improbable) == _SHOWN or not np.isfinite(per_token[i]):
            break
        improbable.setdefault(texts[i], float(per_token[i]))
    # The primary model is given: what the private generator has learned counts.
    measures = traits.of_sentences(public, primary.vocabulary)
    reference = Generated(written.of_what, measures, written.learned)
    verdict = diagnosis.diagnose({WORD: Contrast(written, reference)}, question)
    words = diagnosis.words_that_differ(private, public, primary.vocabulary, top)
    names = written.of_what, 'sentences that the primary model writes'
    found = Ratios(
        case.case.name,
        Mean.ratio(of_private, sizes),
        Mean.ratio(of_primary, (public != PAD_ID).sum(axis=1)),
        tuple(improbable.items()),
    )
    return found, results.Compared(case.case.name, *names, verdict, words)


def learned(case: results.CaseResult, primary: saved_models.LanguageModel, seed: int) -> Learned:
    """T5: the primary model before and after it learns from private sentences.

    The next word is the label of the words before it, so every sentence has its labels.

    Args:
      case: The output of the generator of all sentences, among others; the models are measured on
        the held-out sentences of its task.
      primary: The model to debug.
      seed: Seed of the order of the sentences.
    """
    written = case.written[WORD]
    begin = np.full((len(written.tokens), 1), BOS_ID, np.int32)
    rows = np.concatenate([begin, written.tokens.astype(np.int32)], axis=1)
    weights, _ = architectures.pretrain(
        primary.architecture,
        primary.weights,
        lambda: [rows],
        epochs=_EPOCHS,
        batch_size=min(_BATCH_SIZE, len(rows)),
        learning_rate=_LEARNING_RATE,
        seed=seed,
    )
    after = dataclasses.replace(primary, weights=weights)
    heldout = written.task.heldout
    x, y = heldout[:, :-1], heldout[:, 1:]
    targets, known = (y != PAD_ID).sum(axis=1), (y >= NUM_SPECIAL_TOKENS).sum(axis=1)
    (new_loss, new_right), (old_loss, old_right) = (
        generation.scorer(model.architecture, model.weights)(x, y) for model in (after, primary)
    )
    return Learned(
        case.case.name,
        len(rows),
        (Mean.ratio(old_right, known).value, Mean.ratio(new_right, known).value),
        (Mean.ratio(old_loss, targets).value, Mean.ratio(new_loss, targets).value),
        Mean.ratio(new_right - old_right, known),
        Mean.ratio(new_loss - old_loss, targets),
    )
