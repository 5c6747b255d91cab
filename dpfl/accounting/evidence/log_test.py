"""One test of a participation log against the law of its plan's sampling."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class LogTest:
    """Result of one exact test.

    Attributes:
      name: what was tested, such as 'participations in total'.
      p_value: upper bound on the probability, if cohorts are sampled as planned, of a log that is
        at least as extreme; 0 if the sampling cannot produce the log at all.
      words: what the log shows and what the sampling leads to, one sentence.
    """

    name: str
    p_value: float
    words: str

    @property
    def sentence(self) -> str:
        """The words, with the test and its p-value if the log is possible but too unlikely."""
        if not self.p_value:
            return self.words
        return f'{self.words} (Test of {self.name}: p-value {self.p_value:.2g}.)'
