"""The table of models: every model with its number of parameters."""

import re

from dpfl.tasks.config import IMAGE_MODELS, WORD_MODELS
from dpfl.tasks.images import classifiers
from dpfl.tasks.text.models import catalog
from tests import paths


def test_the_table_has_every_model_with_its_size():
    page = (paths.ROOT / 'docs' / 'reference' / 'models.md').read_text()
    words, _, images = page.partition('## Images')
    rows = re.findall(r'^\| `(\w+)` \|.*?\| ([\d,]+) \| ([\d,]+) \|[^|]*\|$', words, re.M)
    found = {name: (small, large) for name, small, large in rows}
    assert list(found) == list(catalog.WORD_MODELS) and set(found) == set(WORD_MODELS)
    for name, sizes in found.items():
        model = catalog.WORD_MODELS[name]
        assert sizes == tuple(f'{model.num_parameters(count):,}' for count in (2_000, 10_000))
    rows = re.findall(r'^\| `(\w+)` \| ([\d,]+) \|$', images, re.M)
    sizes = {name: f'{classifiers.PRESETS[name].num_parameters:,}' for name in IMAGE_MODELS}
    assert dict(rows) == sizes
