"""Tasks: what is learned at short lengths and asked at long ones.

`TASKS` is the catalogue of the 15 tasks of the Chomsky-hierarchy benchmark (Deletang et
al. 2022, arXiv 2207.02098; Ruoss et al. 2023, arXiv 2305.16843). `MORE_TASKS` holds
those that other papers train on, `TEXT_TASKS` language modelling, `ALL_TASKS` all.
"""

from types import MappingProxyType

from ropejax.tasks.addition import Addition
from ropejax.tasks.addition_scratchpad import AdditionScratchpad
from ropejax.tasks.associative_recall import AssociativeRecall
from ropejax.tasks.autoregressive import Autoregressive
from ropejax.tasks.base import Batch, Example, Level, Task
from ropejax.tasks.binary_addition import BinaryAddition
from ropejax.tasks.binary_multiplication import BinaryMultiplication
from ropejax.tasks.bucket_sort import BucketSort
from ropejax.tasks.compute_sqrt import ComputeSqrt
from ropejax.tasks.copy_string import CopyString
from ropejax.tasks.count import Count
from ropejax.tasks.cycle_navigation import CycleNavigation
from ropejax.tasks.duplicate_string import DuplicateString
from ropejax.tasks.dyck import Dyck
from ropejax.tasks.even_pairs import EvenPairs
from ropejax.tasks.flip_flop import FlipFlop
from ropejax.tasks.induction_heads import InductionHeads
from ropejax.tasks.key_lookup import KeyLookup
from ropejax.tasks.lego import Lego
from ropejax.tasks.masked_text import MaskedText
from ropejax.tasks.missing_duplicate_string import MissingDuplicateString
from ropejax.tasks.mode import Mode
from ropejax.tasks.modular_arithmetic import ModularArithmetic
from ropejax.tasks.modular_arithmetic_brackets import ModularArithmeticBrackets
from ropejax.tasks.multiplication import Multiplication
from ropejax.tasks.next_symbol import NextSymbol
from ropejax.tasks.odds_first import OddsFirst
from ropejax.tasks.parity_check import ParityCheck
from ropejax.tasks.parity_scratchpad import ParityScratchpad
from ropejax.tasks.passkey import Passkey
from ropejax.tasks.polynomial import Polynomial
from ropejax.tasks.reverse_string import ReverseString
from ropejax.tasks.selective_copy import SelectiveCopy
from ropejax.tasks.solve_equation import SolveEquation
from ropejax.tasks.sort_numbers import SortNumbers
from ropejax.tasks.stack_manipulation import StackManipulation
from ropejax.tasks.summation import Summation
from ropejax.tasks.word_problem import WordProblem

TASKS: MappingProxyType[str, type[Task]] = MappingProxyType(
    {
        # regular
        "even_pairs": EvenPairs,
        "modular_arithmetic": ModularArithmetic,
        "parity_check": ParityCheck,
        "cycle_navigation": CycleNavigation,
        # deterministic context-free
        "stack_manipulation": StackManipulation,
        "reverse_string": ReverseString,
        "modular_arithmetic_brackets": ModularArithmeticBrackets,
        "solve_equation": SolveEquation,
        # context-sensitive
        "duplicate_string": DuplicateString,
        "missing_duplicate_string": MissingDuplicateString,
        "odds_first": OddsFirst,
        "binary_addition": BinaryAddition,
        "binary_multiplication": BinaryMultiplication,
        "compute_sqrt": ComputeSqrt,
        "bucket_sort": BucketSort,
    }
)
"""The tasks by name, in the order of the papers' tables."""

MORE_TASKS: MappingProxyType[str, type[Task]] = MappingProxyType(
    {
        "copy": CopyString,
        "selective_copy": SelectiveCopy,
        "sort": SortNumbers,
        "addition": Addition,
        "addition_scratchpad": AdditionScratchpad,
        "multiplication": Multiplication,
        "summation": Summation,
        "polynomial": Polynomial,
        "parity_scratchpad": ParityScratchpad,
        "key_lookup": KeyLookup,
        "associative_recall": AssociativeRecall,
        "induction_heads": InductionHeads,
        "passkey": Passkey,
        "flip_flop": FlipFlop,
        "word_problem": WordProblem,
        "dyck": Dyck,
        "lego": Lego,
        "mode": Mode,
        "count": Count,
    }
)
"""Tasks of other papers by name."""

TEXT_TASKS: MappingProxyType[str, type[Task]] = MappingProxyType(
    {"masked_text": MaskedText, "next_symbol": NextSymbol}
)
"""Tasks on text by name, with answers in place."""

ALL_TASKS: MappingProxyType[str, type[Task]] = MappingProxyType(
    {**TASKS, **MORE_TASKS, **TEXT_TASKS}
)
"""Every task by name; those of the benchmark come first."""

__all__ = [
    "ALL_TASKS",
    "MORE_TASKS",
    "TASKS",
    "TEXT_TASKS",
    "Autoregressive",
    "Batch",
    "Example",
    "Level",
    "MaskedText",
    "NextSymbol",
    "Task",
]
