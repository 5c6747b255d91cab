"""Tasks: clients' data, models and metrics. Importing this package does not load TensorFlow.

A task says who the clients are, turns a client's id into batches, and has a model for them; data
come from files, repositories and data sets, or are synthetic. The room knows nothing of privacy but
the histograms that choose a vocabulary.
"""

FOR_ROOMS = (
    'before_training',
    'config',
    'data_sets',
    'federated_task',
    'images.classifiers',
    'images.gan_models',
    'images.image_clients',
    'images.image_task',
    'own_data',
    'selection',
    'text.author_texts',
    'text.git_log',
    'text.models.architectures',
    'text.models.generation',
    'text.models.metrics',
    'text.models.saved_models',
    'text.record_files',
    'text.synthetic_text',
    'text.text_statistics',
    'text.text_task',
    'text.tokenization',
    'text.vocabulary',
    'text.word_clients',
)
