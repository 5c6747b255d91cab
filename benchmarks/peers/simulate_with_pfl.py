"""Rounds of benchmarks/simulation.py by pfl-research with PyTorch, in its own environment.

There is a process for each processor core, as pfl's documentation advises, connected by PyTorch.
This is the first of them, and starts the others.
"""

import os
import socket
import subprocess
import sys

from benchmarks.peers import rounds

_RANK, _ADDRESSES = 'PFL_WORKER_RANK', 'PFL_WORKER_ADDRESSES'


def main() -> None:
    others = []
    if rounds.cores() > 1 and _RANK not in os.environ:
        others = _start_others(rounds.cores())
    # pfl connects the processes when it is imported.
    _train(*rounds.given())
    for other in others:
        other.wait()


def _start_others(processes: int) -> list[subprocess.Popen]:
    with socket.socket() as listener:
        listener.bind(('localhost', 0))
        port = listener.getsockname()[1]
    os.environ[_ADDRESSES] = ','.join([f'localhost:{port}'] * processes)
    os.environ[_RANK] = '0'
    command = [sys.executable, *sys.orig_argv[1:]]
    return [
        subprocess.Popen(
            command,
            env={**os.environ, _RANK: str(rank)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        for rank in range(1, processes)
    ]


def _train(cell: str, job: rounds.Job) -> None:
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data import dataset, federated_dataset, sampling
    from pfl.hyperparam.base import NNTrainHyperParams
    from pfl.metrics import Weighted
    from pfl.model.pytorch import PyTorchModel
    from pfl.privacy.gaussian_mechanism import GaussianMechanism
    from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism

    from benchmarks.peers import torch_lstm

    model = torch_lstm.model(cell, job)
    # pfl evaluates in the first round, which is not measured.
    model.metrics = lambda x, y: {'loss': Weighted.from_unweighted(model.loss(x, y).item())}
    clients = [
        dataset.Dataset([torch.cat(part) for part in zip(*client, strict=True)], user_id=number)
        for number, client in enumerate(torch_lstm.batches(job))
    ]
    users = federated_dataset.FederatedDataset(
        clients.__getitem__, sampling.get_user_sampler('minimize_reuse', range(job.clients))
    )
    privacy = CentrallyAppliedPrivacyMechanism(
        GaussianMechanism(rounds.CLIP_NORM, rounds.NOISE_MULTIPLIER)
    )
    endless = sys.maxsize
    FederatedAveraging().run(
        NNAlgorithmParams(endless, endless, job.clients, None),
        SimulatedBackend(users, users, [privacy]),
        PyTorchModel(
            model,
            torch.optim.SGD,
            torch.optim.SGD(model.parameters(), lr=1.0, momentum=rounds.MOMENTUM),
        ),
        NNTrainHyperParams(
            local_batch_size=job.batch_size,
            local_num_epochs=1,
            local_learning_rate=rounds.LEARNING_RATE,
        ),
        callbacks=[_turns()],
        send_metrics_to_platform=False,
    )


def _turns():
    """A callback after every round. The first process says whether there is another."""
    import torch
    from pfl.callback.base import TrainingProcessCallback
    from pfl.metrics import Metrics

    class Turns(TrainingProcessCallback):
        def __init__(self):
            self._turns = rounds.Turns() if os.environ.get(_RANK, '0') == '0' else None

        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            another = torch.tensor(self._turns.next() if self._turns else False)
            if torch.distributed.is_initialized():
                torch.distributed.broadcast(another, 0)
            return not another.item(), Metrics()

    return Turns()


if __name__ == '__main__':
    main()
