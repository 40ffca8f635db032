"""Training as pure functions: data, positions and steps inside compiled programs."""

from ropejax.training.buckets import even_buckets
from ropejax.training.curriculum import CURRICULA, Curriculum, Fixed, Uniform
from ropejax.training.loop import Progress, newest_state, train
from ropejax.training.members import AdamFamily, Member, Numbers
from ropejax.training.nonfinite import NonFiniteError
from ropejax.training.optimizer import adam, schedule
from ropejax.training.population import Population
from ropejax.training.population_loop import train_population
from ropejax.training.starting import start_from
from ropejax.training.step import Recipe, TrainState, init_state

__all__ = [
    "AdamFamily",
    "CURRICULA",
    "Curriculum",
    "Fixed",
    "Member",
    "NonFiniteError",
    "Numbers",
    "Population",
    "Progress",
    "Recipe",
    "TrainState",
    "Uniform",
    "adam",
    "even_buckets",
    "init_state",
    "newest_state",
    "schedule",
    "start_from",
    "train",
    "train_population",
]
