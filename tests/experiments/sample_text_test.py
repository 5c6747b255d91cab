"""`sample_text`: what it writes is read as text of one's own."""

import collections
import json

from dpfl.tasks.text import synthetic_text
from tests import forked_binaries


def test_the_text_is_that_of_the_clients_of_the_seed(tmp_path):
    file = tmp_path / 'texts.jsonl'
    forked_binaries.run('sample_text', '--clients=3', '--seed=7', f'--output={file}', check=True)
    texts = collections.defaultdict(list)
    for line in file.read_text().splitlines():
        record = json.loads(line)
        texts[record['client']].append(record['text'])
    population = synthetic_text.SyntheticText(vocabulary_size=96, seed=7, sentence_length=10)
    assert dict(texts) == {f'client{client}': population.text(client) for client in range(3)}
