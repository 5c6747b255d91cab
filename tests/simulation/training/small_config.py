"""Configurations of runs that take seconds, which tests change with `with_values`."""

from dpfl.simulation.training import (
    EvaluationConfig,
    PrivacyConfig,
    SamplingConfig,
    TaskConfig,
    TextConfig,
    TrainConfig,
)

# Four rounds of four clients, with the noise of a BLT.
BLT = TrainConfig(
    task=TaskConfig(model='micro', text=TextConfig(vocabulary_size=40, sentence_length=6)),
    privacy=PrivacyConfig(
        mechanism='blt',
        blt_decay=(0.9, 0.5),
        blt_scale=(0.1, 0.2),
        noise_multiplier=3.0,
        clip_norm=0.3,
        delta=1e-3,
    ),
    sampling=SamplingConfig(rounds=4, population=16, clients_per_round=4, min_separation=4),
    evaluation=EvaluationConfig(eval_every=2, eval_clients=4),
    noise_seed=5,
)
# The same with independent noise.
GAUSSIAN = BLT.with_values({'mechanism': 'gaussian', 'blt_decay': None, 'blt_scale': None})
