"""How much of held-out text a vocabulary covers, and which unknown words are shown."""

import pytest

from dpfl.tasks.text import coverage
from dpfl.tasks.text.coverage import Coverage
from dpfl.tasks.text.vocabulary import Vocabulary

_KNOWN = Vocabulary(('the', 'cat'))


def test_tokens_are_counted_by_hand():
    clients = [[['the', 'cat', ','], ['the', 'dog']], [[','], []]]
    found = Coverage.of(clients, _KNOWN)
    assert (found.clients, found.tokens, found.known) == (2, 6, 3)
    assert found.unknown_share == 0.5
    assert found.frequent == ()  # No word of fewer than five clients is shown.
    assert Coverage.of([], _KNOWN).unknown_share == 0


def test_words_of_few_clients_are_not_shown_however_frequent():
    secret = ['hunter2'] * 100
    clients = [[[',', '!']]] * coverage.LEAST_CLIENTS + [[[','], secret]] * (
        coverage.LEAST_CLIENTS - 1
    )
    found = Coverage.of(clients, _KNOWN)
    assert found.frequent == (',', '!')
    assert 'hunter2' not in ' '.join(found.sentences())


@pytest.mark.parametrize('unknown, lines', [(0, 1), (10, 1), (11, 2)])
def test_more_than_a_tenth_is_a_warning(unknown, lines):
    found = Coverage(7, 100, 100 - unknown).sentences()
    assert len(found) == lines
    assert found[0].startswith(f'vocabulary: has {100 - unknown}.0% of the tokens of 7 held-out')
    assert lines == 1 or found[1].startswith('warning: 11% of the tokens are unknown')
