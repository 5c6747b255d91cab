"""Debugging of data that nobody may look at, by texts and images of private generators.

The studies of text and of images have one course. `Study(config=..., directory=..., ...).run()`
trains generators of parts of the data, each as a run in a folder of the directory, and measures
traits of their samples. Contrasts of these traits, and how much the generators have learned, give a
verdict on each fault. The result, a `Found`, is shown by `page.render` and `to_dict`.

Both kinds of data share `differences` (shares and means with intervals), `diagnosis` (contrasts,
signatures of faults, power) and `page`. Each kind has its own settings (`config`), clients, traits,
measure of learning, signatures and sentences of verdicts (`diagnosis`), training and page.
"""

FOR_ROOMS = (
    'diagnosis',
    'differences',
    'images.clients',
    'images.config',
    'images.diagnosis',
    'images.findings',
    'images.page',
    'images.primary',
    'images.study',
    'images.traits',
    'page',
    'text.clients',
    'text.config',
    'text.diagnosis',
    'text.page',
    'text.results',
    'text.study',
    'text.traits',
)
