"""What both kinds of data share: contrasts of two generators, and parts of their pages."""

import pytest

from dpfl.debugging import diagnosis, page
from dpfl.debugging.diagnosis import Contrast, Generated, Learned
from dpfl.debugging.differences import Mean, Share
from dpfl.debugging.images import traits as of_images
from dpfl.debugging.text import traits as of_text


def _generated(share, of_what='all clients', combed=0):
    learned = Learned(share, f'it knows {share:.0%}')
    return Generated(of_what, {'combed': Share(combed, 1000)}, learned)


@pytest.mark.parametrize(
    'first, reference, learned, is_comparable',
    [(0.9, 0.4, 0.4, True), (0.4, 0.9, 0.4, True), (0.0, 0.5, 0.0, True), (0.5, 0.0, 0.0, False)],
)
def test_a_contrast_has_learned_what_both_have(first, reference, learned, is_comparable):
    found = Contrast(_generated(first), _generated(reference, 'public images'))
    assert (found.learned, found.is_comparable) == (learned, is_comparable)
    # It names who has learned nothing.
    assert ('of all clients has learned nothing: it knows 0%' in found.reason) == (first == 0)
    assert ('of public images has learned nothing' in found.reason) == (reference == 0)


def test_the_power_falls_with_what_is_learned_and_with_the_draws_that_must_have_the_fault():
    def share(learned, draws):
        sign = diagnosis.Sign('combed', draws=draws)
        signature = diagnosis.Signature('encoding', (sign,), '')
        contrasts = {'a': Contrast(_generated(learned), _generated(learned))}
        power = diagnosis.power_at(0.01, of_images.ALL)
        effects = {'encoding': {'combed': 1.0}}
        found = diagnosis.unseen(signature, contrasts, effects, power, data='images')
        assert (found.verdict == 'not seen') == (found.power >= diagnosis.TOLD)
        return found.share

    # Least difference 0.2: of all images, or a root of it if two must have the fault.
    expected = [0.2, 0.4, 0.2**0.5]
    assert [share(1.0, 1), share(0.5, 1), share(1.0, 2)] == pytest.approx(expected, rel=0.12)


def test_parts_of_pages():
    text = page.document('N', 'T', [('One', '<p>1</p>'), ('Two', '')], lead='<p>0</p>')
    assert '<h1>T</h1>\n<p>0</p>\n<h2>One</h2>\n<p>1</p>' in text and 'Two' not in text
    assert page.epsilon(None) == page.epsilon(float('inf')) == 'infinite'
    assert page.epsilon(1.23401) == '1.235'
    measured = page.measured({'a': {'combed': Share(1, 10)}}, of_images.ALL)
    assert '10.00% (1.79 to 40.42' in measured
    assert '3.00 (3.00 to 3.00)' in page.measured({'a': {'length': Mean(3.0, 0.0, 5)}}, of_text.ALL)
    contrast = Contrast(_generated(1, combed=900), _generated(1))
    (compared,) = diagnosis.compare({'a': contrast}, of_images.ALL)['a']
    table = page.differences([compared], of_images.ALL, ['combed'])
    assert '<td class="clear">rows alternate' in table and '+90.00 points' in table
