"""The symbols and terms of a privacy report, each in a sentence."""

TERMS = {
    'client': 'one participant with all of its data: the unit of privacy.',
    'epsilon, delta': 'whatever is released is at most e^epsilon times as probable with a client '
    'as without it, except for events of probability delta. Smaller is more private.',
    'zCDP, rho': 'zero-concentrated differential privacy (Bun and Steinke 2016): a bound for all '
    'deltas at once, which adds up over runs. rho = mu^2 / 2.',
    'Gaussian DP, mu': 'telling a client apart from its absence is at least as hard as telling two '
    'normal distributions of variance 1 apart whose means differ by mu (Dong, Roth and Su 2022).',
    'clip norm': 'largest L2 norm of what one client sends in a round; longer updates are scaled '
    'down to it.',
    'noise multiplier': 'standard deviation of the noise z, divided by the clip norm.',
    'C': 'the strategy matrix of the mechanism, lower triangular, a row and a column for each '
    'round. The noise of the rounds is C^-1 z, with independent entries of z.',
    'C x': 'what z hides: x has the clipped sum of each round. C x + z is released in effect, and '
    'everything else follows from it.',
    'sensitivity': 'largest norm of C u, where u has 1 in the rounds of one client and 0 in the '
    'others: how far one client moves C x, at clip norm 1.',
    'min separation, max participations': 'least distance j - i of two rounds i < j of one client, '
    'and most rounds of one client.',
    'observed limits, observed clients': 'the same limits as all clients of the log kept them, and '
    'exactly the rounds in which they took part.',
}


def render() -> str:
    """The terms as a list of Markdown."""
    return '\n'.join(f'- **{term}**: {meaning}' for term, meaning in TERMS.items())
