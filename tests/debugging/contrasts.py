"""Contrasts of generators that are not trained."""

from dpfl.debugging.diagnosis import Contrast, Generated, Learned


def of(first, reference, learned=1.0):
    """The contrast of two sets of traits, of which both generators have learned a share."""
    has_learned = Learned(learned, 'untrained')
    return Contrast(*(Generated('all', traits, has_learned) for traits in (first, reference)))
