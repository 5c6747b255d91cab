"""Language models by name."""

import tensorflow_federated as tff

from dpfl import _validate
from dpfl.tasks.text.models import architectures, dense_lstm, stacked_cifg, tied_lstm

# Next-word models: the CIFG of [Xu23] (`cifg_670`), the LSTM of [McMahan18] (`lstm_256`), that of
# the StackOverflow benchmark in [McMahan24] (`lstm_670`), and smaller ones. That of [McMahan18] has
# one embedding for input and output, the others have two; the opposites are for comparison.
WORD_MODELS: dict[str, architectures.Architecture] = {
    'cifg_670': stacked_cifg.StackedCifg(96, 670, 96),
    'small': stacked_cifg.StackedCifg(32, 128, 32),
    'tiny': stacked_cifg.StackedCifg(16, 32, 16),
    'micro': stacked_cifg.StackedCifg(8, 16, 8),
    'lstm_256': tied_lstm.TiedLstm(embedding_size=96, hidden_size=256),
    'lstm_tiny': tied_lstm.TiedLstm(embedding_size=16, hidden_size=32),
    'cifg_670_tied': stacked_cifg.StackedCifg(96, 670, 96, tied=True),
    'small_tied': stacked_cifg.StackedCifg(32, 128, 32, tied=True),
    'lstm_256_untied': tied_lstm.TiedLstm(embedding_size=96, hidden_size=256, tied=False),
    'lstm_670': dense_lstm.DenseLstm(embedding_size=96, hidden_size=670, projection_size=96),
    'lstm_dense_tiny': dense_lstm.DenseLstm(embedding_size=16, hidden_size=32, projection_size=16),
}

# Character models: the one of [Augenstein20], appendix B.2 (`char_cifg_256`), and smaller ones.
CHAR_MODELS: dict[str, architectures.Architecture] = {
    'char_cifg_256': stacked_cifg.StackedCifg(128, 256, 128, num_layers=3),
    'char_small': stacked_cifg.StackedCifg(32, 128, 32, num_layers=2),
    'char_tiny': stacked_cifg.StackedCifg(16, 64, 24),
}

ALL = {**WORD_MODELS, **CHAR_MODELS}


def build(
    name: str, num_tokens: int, sequence_length: int, seed: int
) -> tff.learning.models.FunctionalModel:
    """Builds the model of a name in `ALL`. The other arguments are those of `architectures.build`.

    Raises:
      ValueError: if an argument is outside its range; the message names it.
    """
    return architectures.build(
        ALL[_validate.choice('name', name, ALL)], num_tokens, sequence_length, seed
    )
