"""Rounds of benchmarks/simulation.py by Flower's simulation with PyTorch, in its own environment.

Flower's `FedAvgM` with its differential privacy; updates are clipped where they are computed. Ray,
which runs Flower's simulations, runs one client on each processor core at a time.
"""

import contextlib
import os

os.environ['FLWR_TELEMETRY_ENABLED'] = '0'
os.environ['RAY_USAGE_STATS_ENABLED'] = '0'

import flwr.app  # noqa: E402
import torch  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.clientapp.mod import fixedclipping_mod  # noqa: E402
from flwr.serverapp import ServerApp, strategy  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402

from benchmarks.peers import rounds, torch_lstm  # noqa: E402


def _client(cell: str, job: rounds.Job) -> ClientApp:
    app = ClientApp()

    @app.train(mods=[fixedclipping_mod])
    def train(message, context):
        model = torch_lstm.model(cell, job)
        model.load_state_dict(message.content['arrays'].to_torch_state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=rounds.LEARNING_RATE)
        for x, y in torch_lstm.batches(job)[context.node_config['partition-id']]:
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


def _server(cell: str, job: rounds.Job) -> ServerApp:
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
        arrays = flwr.app.ArrayRecord(torch_lstm.model(cell, job).state_dict())
        with contextlib.suppress(_LastRoundError):
            private.start(grid, arrays, num_rounds=10**9, evaluate_fn=after_round)

    return app


def main() -> None:
    cell, job = rounds.given()
    run_simulation(
        _server(cell, job),
        _client(cell, job),
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
