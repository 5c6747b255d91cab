"""Simulation of federated training: who takes part, and the loop that runs the rounds.

`dpfl.simulation.training` has runs as values; around it are the population, the samplers, the
journal, checkpoints and the directory of a run. `guard` gives a directory to loops of one's own.
"""

FOR_ROOMS = (
    'checkpoint',
    'earlier_settings',
    'population',
    'public_copy',
    'run_directory',
    'training',
    'training.execution',
    'training.gan',
    'training.mechanism',
    'training.plan',
    'training.prepared_task',
    'training.privacy_config',
    'training.recorded_settings',
    'training.round_config',
    'training.run_model',
    'training.suggestion',
)
