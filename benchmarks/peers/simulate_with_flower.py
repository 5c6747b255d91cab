"""Rounds of benchmarks/simulation.py by Flower's simulation with PyTorch, in its own environment.

Flower's `FedAvgM` with its differential privacy; updates are clipped where they are computed. Ray,
which runs Flower's simulations, runs one client on each processor core at a time.
"""

import contextlib
import functools
import os

os.environ['FLWR_TELEMETRY_ENABLED'] = '0'
os.environ['RAY_USAGE_STATS_ENABLED'] = '0'

import flwr.app  # noqa: E402
import torch  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.clientapp.mod import fixedclipping_mod  # noqa: E402
from flwr.serverapp import ServerApp, strategy  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402

from benchmarks.peers import rounds  # noqa: E402


class _LanguageModel(torch.nn.Module):
    """Embedding, LSTM, projection, logits, as users of PyTorch write them."""

    def __init__(self, job: rounds.Job):
        super().__init__()
        embedding, units, projection = job.sizes
        self.embedding = torch.nn.Embedding(job.vocabulary, embedding)
        self.lstm = torch.nn.LSTM(embedding, units, batch_first=True)
        self.projection = torch.nn.Linear(units, projection, bias=False)
        self.output = torch.nn.Linear(projection, job.vocabulary)

    def forward(self, x):
        return self.output(self.projection(self.lstm(self.embedding(x))[0]))

    def loss(self, x, y):
        return torch.nn.functional.cross_entropy(self(x).flatten(0, 1), y.flatten())


@functools.cache
def _model(job: rounds.Job) -> _LanguageModel:
    """The model of this process, which computes on one core; each core has a process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return _LanguageModel(job)


@functools.cache
def _batches(job: rounds.Job) -> list[list[tuple[torch.Tensor, torch.Tensor]]]:
    """Inputs and labels of each batch of each client."""
    tokens = torch.from_numpy(job.tokens()).long()
    return [[(batch[:, :-1], batch[:, 1:]) for batch in client] for client in tokens]


def _client(job: rounds.Job) -> ClientApp:
    app = ClientApp()

    @app.train(mods=[fixedclipping_mod])
    def train(message, context):
        model = _model(job)
        model.load_state_dict(message.content['arrays'].to_torch_state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=rounds.LEARNING_RATE)
        for x, y in _batches(job)[context.node_config['partition-id']]:
            optimizer.zero_grad()
            model.loss(x, y).backward()
            optimizer.step()
        reply = flwr.app.RecordDict(
            {
                'arrays': flwr.app.ArrayRecord(model.state_dict()),
                'metrics': flwr.app.MetricRecord({'num-examples': 1}),
            }
        )
        return flwr.app.Message(content=reply, reply_to=message)

    return app


class _LastRoundError(Exception):
    """Nobody asks for another round."""


def _server(job: rounds.Job) -> ServerApp:
    app = ServerApp()

    @app.main()
    def run(grid, context):
        turns, before = None, None

        def after_round(number, arrays):
            nonlocal turns, before
            if arrays is before:
                raise RuntimeError('clients have failed')  # Flower goes on without their updates.
            before = arrays
            if turns is None:
                turns = rounds.Turns()
            elif not turns.next():
                raise _LastRoundError

        averaging = strategy.FedAvgM(
            fraction_evaluate=0.0,
            min_available_nodes=job.clients,
            server_learning_rate=1.0,
            server_momentum=rounds.MOMENTUM,
        )
        private = strategy.DifferentialPrivacyClientSideFixedClipping(
            averaging, rounds.NOISE_MULTIPLIER, rounds.CLIP_NORM, job.clients
        )
        arrays = flwr.app.ArrayRecord(_model(job).state_dict())
        with contextlib.suppress(_LastRoundError):
            private.start(grid, arrays, num_rounds=10**9, evaluate_fn=after_round)

    return app


def main() -> None:
    job = rounds.given()
    run_simulation(
        _server(job),
        _client(job),
        num_supernodes=job.clients,
        backend_config={
            # Standard output is reserved for answers.
            'init_args': {
                'num_cpus': rounds.cores(),
                'log_to_driver': False,
                '_node_ip_address': '127.0.0.1',
            },
            'client_resources': {'num_cpus': 1, 'num_gpus': 0.0},
        },
    )


if __name__ == '__main__':
    main()
