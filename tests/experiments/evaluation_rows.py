"""Rows of the results store with scores that can be checked by hand."""

from experiments.report import summaries, summarize
from experiments.results import store as results

TRAIN_MAX, TEST_MAX = 2, 6


def scored(run_id, right, **changes):
    """Evaluation rows with 100 tokens a length, `right` of them right beyond 2."""
    lengths = changes.pop("lengths", range(1, TEST_MAX + 1))
    row = {
        "run_id": run_id,
        "task": "reverse_string",
        "task_title": "Reverse String",
        "encoding": "rope",
        "encoding_title": "RoPE",
        "positions": "consecutive",
        "seed": 0,
        "learning_rate": 1e-3,
        "step": 100,
        "tokens": 100,
        "exact": 1,
        "rows": 4,
        "input_blind": 0.5,
        "train_max_length": TRAIN_MAX,
        "test_max_length": TEST_MAX,
    } | changes
    return [
        row | {"length": n, "correct": 100 if n <= TRAIN_MAX else right}
        for n in lengths
    ]


def cells_of(*groups):
    """Groups the runs of some lists of rows, as they are."""
    return summaries.group_cells(runs_of(*groups))


def runs_of(*groups):
    """Summarizes the runs of some lists of rows."""
    return summarize.summarize_runs([row for group in groups for row in group])


def store(folder, *groups, configs=None):
    """Writes rows, and a config for each run, into a results folder."""
    configs = configs or {}
    for group in groups:
        run_id, seed = group[0]["run_id"], group[0]["seed"]
        with results.ResultsWriter(folder, run_id) as writer:
            config = configs.get(run_id, {"train": {"seed": seed}})
            writer.write("run", seed=seed, config=config)
            writer.evaluation(group)
    return folder
