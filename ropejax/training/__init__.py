"""Training as pure functions: data, positions and steps inside compiled programs."""

from ropejax.training.buckets import even_buckets as even_buckets
from ropejax.training.curriculum import CURRICULA as CURRICULA
from ropejax.training.curriculum import Curriculum as Curriculum
from ropejax.training.curriculum import Fixed as Fixed
from ropejax.training.curriculum import Uniform as Uniform
from ropejax.training.loop import Progress as Progress
from ropejax.training.loop import newest_state as newest_state
from ropejax.training.loop import train as train
from ropejax.training.members import AdamFamily as AdamFamily
from ropejax.training.members import Member as Member
from ropejax.training.members import Numbers as Numbers
from ropejax.training.nonfinite import NonFiniteError as NonFiniteError
from ropejax.training.optimizer import adam as adam
from ropejax.training.optimizer import schedule as schedule
from ropejax.training.population import Population as Population
from ropejax.training.population_loop import train_population as train_population
from ropejax.training.step import Recipe as Recipe
from ropejax.training.step import TrainState as TrainState
from ropejax.training.step import init_state as init_state
