"""Compares two sides, kind by kind, and draws the verdict."""

import dataclasses
from typing import Any

from experiments.studies.generators import images_part, joint, sentences_part, sides, words_part
from experiments.studies.generators.config import ComparisonConfig
from experiments.studies.generators.verdict import Area, Verdict


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two sides, compared.

    Attributes:
      sides: The generators of a and b by kind.
      config: How they are compared.
      sentences: Comparison of the word models; None without them, as the next ones.
      words: Comparison of the character models.
      images: Comparison of the generators of images.
      guarantees: What the runs guarantee together, from `joint.guarantees`.
    """

    sides: tuple[sides.Side, sides.Side]
    config: ComparisonConfig
    sentences: sentences_part.Sentences | None
    words: words_part.Words | None
    images: images_part.Images | None
    guarantees: list[dict[str, Any]]

    @property
    def verdict(self) -> Verdict:
        """Whether the sides differ, and in what."""
        areas: list[Area] = []
        for part in (self.sentences, self.words, self.images):
            areas += part.areas() if part is not None else ()
        generators = [each for side in self.sides for each in side.values()]
        unlearned = {each.unlearned: None for each in generators if each.unlearned is not None}
        return Verdict(tuple(areas), self.config.alpha, tuple(unlearned))

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        top = self.config.top
        parts = {'sentences': self.sentences, 'words': self.words, 'images': self.images}
        return {
            'verdict': self.verdict.to_dict(),
            'a': [each.to_dict() for each in self.sides[0].values()],
            'b': [each.to_dict() for each in self.sides[1].values()],
            'guarantees': self.guarantees,
            'settings': self.config.to_dict(),
            **{name: part.to_dict(top) for name, part in parts.items() if part is not None},
        }


def compare(first: sides.Side, second: sides.Side, config: ComparisonConfig) -> Comparison:
    """Compares two sides.

    Raises:
      ArgumentError: If they cannot be compared; it names `b`.
      RunError: If a file cannot be read.
      DataError: If the data of a classifier cannot be read.
    """
    sides.check_pair(first, second)

    def pair(kind: str) -> tuple[sides.Generator, sides.Generator]:
        return first[kind], second[kind]

    known: frozenset[str] = frozenset()
    if sides.WORD in first:
        model = first[sides.WORD].model
        known = frozenset(model.vocabulary or ()) if model is not None else known
    return Comparison(
        sides=(first, second),
        config=config,
        sentences=sentences_part.compare(*pair(sides.WORD), config)
        if sides.WORD in first
        else None,
        words=words_part.compare(*pair(sides.CHAR), known, config) if sides.CHAR in first else None,
        images=images_part.compare(*pair(sides.IMAGES), config) if sides.IMAGES in first else None,
        guarantees=joint.guarantees((first, second)),
    )
