"""The sentences of a privacy report: facts with keys, which the report and a plan's parts give.

A report puts the sentences about every run; then each part puts sentences of its own, and changes
or drops those of others. `reports.sentences` has the order of the fold.
"""

import dataclasses
from typing import Any

# The kinds of facts. An assumption and something that is not covered are one bullet each.
ASSUMPTION, NOT_COVERED = 'assumption', 'not_covered'
# A definition of the checklist; why there is no guarantee; a release composed with the rounds, as a
# clause of the formal statement.
DEFINITION, VOID, COMPOSED = 'definition', 'void', 'composed'
# The first sentences: the meaning of the guarantee for one client, who took part and how that is
# known, and what was checked.
MEANING, TOOK_PART, CHECKED = 'meaning', 'took_part', 'checked'

# What reports are about, in the order of their bullets; other topics come last.
_TOPICS = (
    # Assumptions.
    'participation', 'secrecy', 'tests', 'limits', 'clip_norm', 'rounding', 'noise', 'hardened',
    'earlier', 'before', 'release', 'exactness', 'server', 'hosts', 'independence',
    # Not covered; the gravest first.
    'no_noise', 'train_metrics', 'cohort_seed', 'noise_seed', 'tuning', 'metrics', 'timing',
    'earlier_data', 'clients', 'attacks', 'other_runs', 'copies', 'public_model', 'of_run',
    'large_delta', 'amplification', 'log',
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Fact:
    """A sentence, and the values of its slots.

    Attributes:
      kind: such as `ASSUMPTION`.
      key: `topic[@which][/name]`, the topic from the list of this file. Facts that differ in the
        name only are sentences of one bullet.
      words: a format string with a slot for each value. Texts of users are values.
      values: by slot.
    """

    kind: str
    key: str
    words: str
    values: dict[str, Any]

    @property
    def text(self) -> str:
        """The sentence."""
        return self.words.format(**self.values)

    @property
    def bullet(self) -> str:
        """The key without the name."""
        return self.key.partition('/')[0]

    @property
    def topic(self) -> str:
        """The topic alone."""
        return self.bullet.partition('@')[0]


class Facts:
    """The facts of one report, while they are collected and afterwards.

    >>> facts = Facts()
    >>> facts.put(ASSUMPTION, 'clip_norm', 'The norm is {norm:g}{changes}.', norm=1.0, changes='')
    >>> facts.change(ASSUMPTION, 'clip_norm', changes=', then smaller')
    >>> facts.put(ASSUMPTION, 'clip_norm/weights', 'Weights are at most 1.')
    >>> facts.bullets(ASSUMPTION)
    ['The norm is 1, then smaller. Weights are at most 1.']
    """

    def __init__(self) -> None:
        self._facts: dict[tuple[str, str], Fact] = {}

    def put(self, kind: str, key: str, words: str, **values: Any) -> None:
        """Adds a fact, in place of the one with the same kind and key."""
        self._facts[kind, key] = Fact(kind, key, words, values)

    def change(self, kind: str, key: str, **values: Any) -> None:
        """Changes slots of a fact that another file has put.

        Raises:
          KeyError: if there is no such fact, or it does not have such a slot.
        """
        fact = self._facts[kind, key]
        if missing := values.keys() - fact.values.keys():
            raise KeyError(f'{kind} {key} has no {", ".join(sorted(missing))}')
        self._facts[kind, key] = dataclasses.replace(fact, values={**fact.values, **values})

    def drop(self, kind: str, topic: str) -> None:
        """Removes all facts of a topic, if there are any."""
        self._facts = {
            place: fact
            for place, fact in self._facts.items()
            if (fact.kind, fact.topic) != (kind, topic)
        }

    def bullets(self, kind: str) -> list[str]:
        """The sentences of a kind, one text for each bullet, in the order of the topics."""
        bullets: dict[str, list[Fact]] = {}
        for fact in self._facts.values():
            if fact.kind == kind:
                bullets.setdefault(fact.bullet, []).append(fact)
        ordered = sorted(bullets.values(), key=lambda facts: _rank(facts[0].topic))
        return [' '.join(fact.text for fact in facts) for facts in ordered]

    def text(self, kind: str, topic: str) -> str:
        """The sentences of one topic, in the order in which they were put."""
        facts = self._facts.values()
        return ' '.join(fact.text for fact in facts if (fact.kind, fact.topic) == (kind, topic))


def _rank(topic: str) -> int:
    return _TOPICS.index(topic) if topic in _TOPICS else len(_TOPICS)
