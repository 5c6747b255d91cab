"""Training runs as values: a configuration goes in, one call runs it, a result comes out.

Importing this package does not load TensorFlow; running does.
"""

from dpfl.simulation.population import TimerConfig
from dpfl.simulation.training.config import (
    CourseConfig,
    EvaluationConfig,
    ExecutionConfig,
    GanConfig,
    GanOptimizationConfig,
    OptimizationConfig,
    TrainConfig,
)
from dpfl.simulation.training.cost import Cost, dry_run
from dpfl.simulation.training.execution import TrainResult, train
from dpfl.simulation.training.pretraining import PretrainConfig, PretrainResult, pretrain
from dpfl.simulation.training.privacy_config import PrivacyConfig
from dpfl.simulation.training.round_config import SamplingConfig
from dpfl.simulation.training.run_model import GenerateConfig, generate
from dpfl.tasks.config import DataConfig, ImageTaskConfig, TaskConfig, TextConfig

__all__ = [
    'Cost',
    'CourseConfig',
    'DataConfig',
    'EvaluationConfig',
    'ExecutionConfig',
    'GanConfig',
    'GanOptimizationConfig',
    'GenerateConfig',
    'ImageTaskConfig',
    'OptimizationConfig',
    'PretrainConfig',
    'PretrainResult',
    'PrivacyConfig',
    'SamplingConfig',
    'TaskConfig',
    'TextConfig',
    'TimerConfig',
    'TrainConfig',
    'TrainResult',
    'dry_run',
    'generate',
    'pretrain',
    'train',
]
