"""Writes the table of the best bands and groups of docs/reference/sampling.md, from a JSON file.

Run: python -m scripts.amplification_table    (many minutes; adds what the file lacks)
     python -m scripts.amplification_table --draw    (writes the table again from the file)
"""

import argparse
import json
import pathlib

from dpfl.reporting import plain_text
from experiments.studies.shared import amplification

_DOCS = pathlib.Path(__file__).parents[1] / 'docs'
PAGE = _DOCS / 'reference' / 'sampling.md'
DATA = _DOCS / 'figures' / 'amplification.json'

# (rounds, population, clients per round)
SETTINGS = ((1000, 10_000, 100), (2052, 342_000, 1000), (2000, 3_000_000, 6500))
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
DELTA = 1e-6
_START, _END = '<!-- table of bands -->\n\n', '\n<!-- end of the table -->'


def row(setting: tuple[int, int, int], epsilon: float) -> dict[str, object]:
    """The designs of one setting, as plain values."""
    rounds, population, cohort = setting
    found = amplification.Search(
        rounds=rounds, population=population, clients_per_round=cohort, delta=DELTA
    ).designs('epsilon', epsilon)
    return {
        'setting': list(setting),
        'epsilon': epsilon,
        'bands': found.best.bands,
        'groups': found.best.groups,
        'probability': round(found.best.probability, 6),
        'noise_multiplier': round(found.best.plan.noise_multiplier, 5),
        'best': round(found.best.error, 4),
        'independent': round(found.independent.error, 4),
        'separation': found.separated.groups,
        'separated': round(found.separated.error, 4),
    }


def table(values: list[dict]) -> str:
    """The table of the page."""
    head = ('rounds, clients, cohort', 'epsilon', 'bands = groups', 'probability')
    rows = []
    for value in values:
        errors = [value[name] for name in ('best', 'independent', 'separated')]
        cells = [f'**{error:.4g}**' if error == min(errors) else f'{error:.4g}' for error in errors]
        cells[-1] += f' ({value["separation"]})'
        setting = ', '.join(map(str, value['setting']))
        numbers = [f'{value["epsilon"]:g}', str(value['groups']), f'{value["probability"]:.3g}']
        rows.append([setting, *numbers, *cells])
    return plain_text.markdown([*head, 'best', 'DP-SGD', 'no sampling (bands)'], rows) + '\n'


def main() -> None:
    """Adds what the file lacks, unless --draw is given, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--draw', action='store_true', help='write the table alone')
    values = json.loads(DATA.read_text()) if DATA.exists() else []
    if not parser.parse_args().draw:
        known = {(tuple(value['setting']), value['epsilon']): value for value in values}
        for key in ((setting, epsilon) for setting in SETTINGS for epsilon in EPSILONS):
            if key not in known:
                known[key] = row(*key)
                values = [known[key] for key in sorted(known)]
                lines = ',\n'.join(json.dumps(value) for value in values)
                DATA.write_text(f'[\n{lines}\n]\n')
    before, rest = PAGE.read_text().split(_START)
    after = rest.split(_END)[1]
    PAGE.write_text(before + _START + table(values) + _END + after)


if __name__ == '__main__':
    main()
