"""Training as pure functions: data, positions and steps inside compiled programs."""

from ropejax.training.buckets import even_buckets
from ropejax.training.curriculum import CURRICULA, Curriculum, Fixed, Uniform
from ropejax.training.loop import Progress, newest_state, train
from ropejax.training.members import Member, OptimizerFamily
from ropejax.training.nonfinite import NonFiniteError
from ropejax.training.optimizer import adam, clipped, schedule
from ropejax.training.optimizer_catalogue import OPTIMIZERS
from ropejax.training.optimizer_numbers import Numbers
from ropejax.training.optimizers import Optimizer
from ropejax.training.own_optimizer import OwnOptimizer
from ropejax.training.population import Population
from ropejax.training.population_loop import train_population
from ropejax.training.starting import start_from
from ropejax.training.step import Recipe, TrainState, init_state

__all__ = [
    "CURRICULA",
    "Curriculum",
    "Fixed",
    "Member",
    "NonFiniteError",
    "Numbers",
    "OPTIMIZERS",
    "Optimizer",
    "OptimizerFamily",
    "OwnOptimizer",
    "Population",
    "Progress",
    "Recipe",
    "TrainState",
    "Uniform",
    "adam",
    "clipped",
    "even_buckets",
    "init_state",
    "newest_state",
    "schedule",
    "start_from",
    "train",
    "train_population",
]
