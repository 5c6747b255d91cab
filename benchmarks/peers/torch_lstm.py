"""The language models of benchmarks/simulation.py in PyTorch, as its users write them."""

import functools

import torch

from benchmarks.peers import rounds


class LanguageModel(torch.nn.Module):
    """Embedding, LSTM, projection, logits.

    Args:
      cell: 'lstm', as in `lstm.py`; or 'projected_lstm', which has a recurrent projection and is
        the layer of PyTorch most similar to dpfl's CIFG.
      job: gives the sizes.
    """

    def __init__(self, cell: str, job: rounds.Job):
        super().__init__()
        embedding, units, projection = job.sizes
        self.embedding = torch.nn.Embedding(job.vocabulary, embedding)
        if cell == 'projected_lstm':
            self.lstm = torch.nn.LSTM(embedding, units, batch_first=True, proj_size=projection)
            self.projection = torch.nn.Identity()
        else:
            self.lstm = torch.nn.LSTM(embedding, units, batch_first=True)
            self.projection = torch.nn.Linear(units, projection, bias=False)
        self.output = torch.nn.Linear(projection, job.vocabulary)

    def forward(self, x):
        return self.output(self.projection(self.lstm(self.embedding(x))[0]))

    def loss(self, x, y):
        return torch.nn.functional.cross_entropy(self(x).flatten(0, 1), y.flatten())


@functools.cache
def model(cell: str, job: rounds.Job) -> LanguageModel:
    """The model of this process, which computes on one core; each core has a process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return LanguageModel(cell, job)


@functools.cache
def batches(job: rounds.Job) -> list[list[tuple[torch.Tensor, torch.Tensor]]]:
    """Inputs and labels of each batch of each client."""
    tokens = torch.from_numpy(job.tokens()).long()
    return [[(batch[:, :-1], batch[:, 1:]) for batch in client] for client in tokens]
