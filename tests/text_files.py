"""Files with the text of clients, for tests of own text."""

import json
import pathlib

import numpy as np


def write_clients(path: pathlib.Path, clients: int, sentences: int = 12, seed: int = 0) -> None:
    """Writes JSON Lines of a language in which a word mostly decides the next one.

    There are 30 words with Zipf's frequencies; each has a follower that comes after it in three of
    four cases. Counting words alone therefore gives far less than counting pairs.
    """
    random = np.random.default_rng(seed)
    words = [f'w{chr(97 + i // 26)}{chr(97 + i % 26)}' for i in range(30)]
    frequencies = 1 / np.arange(1, 31)
    frequencies /= frequencies.sum()
    followers = np.random.default_rng(7).permutation(30)
    with open(path, 'w') as file:
        for client in range(clients):
            for _ in range(sentences):
                token = random.choice(30, p=frequencies)
                sentence = []
                for _ in range(8):
                    sentence.append(words[token])
                    is_followed = random.random() < 0.75
                    token = followers[token] if is_followed else random.choice(30, p=frequencies)
                line = {'client': f'c{client}', 'text': ' '.join(sentence) + '.'}
                file.write(json.dumps(line) + '\n')


def write_words(path: pathlib.Path) -> None:
    """Writes the vocabulary of that language, the most frequent word first."""
    path.write_text(''.join(f'w{chr(97 + i // 26)}{chr(97 + i % 26)}\n' for i in range(30)) + '.\n')
