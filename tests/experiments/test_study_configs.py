"""The studies that are shipped: their runs are those of the protocols they name."""

import collections
import pathlib

import pytest

from experiments import lengths
from experiments.building import build
from experiments.report import run_configs
from experiments.running.workdir import flat
from experiments.study import sweep
from experiments.study.cost import Costs
from ropejax.tasks import ALL_TASKS, TASKS, MaskedText
from ropejax.training import Fixed

FOLDER = pathlib.Path(__file__).parents[2] / "configs" / "studies"
NAMES = ("deletang2022", "ruoss2023", "su_robustness")
PAPER_TASKS = 15
PAPER_RUNS = 3 * 10  # learning rates and seeds


def runs_of(name, arg):
    runs, merged = sweep.load(f"{FOLDER / name}.py:{arg}")
    assert merged == 0
    return runs


NAMED = ("task", "encoding", "positions")
SMALL = [
    *(("ruoss2023", f"form={form}") for form in ("mini", "causal", "depth", "draws")),
    *(("ruoss2023", f"form={form}") for form in ("range", "what_helps", "further")),
    *(("arithmetic", f"form={form}") for form in ("loops", "mini")),
    *((name, "form=mini") for name in ("deletang2022", "kazemnejad2023")),
]


@pytest.mark.fast
@pytest.mark.parametrize(("name", "arg"), SMALL)
def test_settings_of_a_study_are_told_apart_by_names_and_titles_alone(name, arg):
    """Else a report would name them after fields: `model.num_layers=4`."""
    alike = collections.defaultdict(list)
    for run in runs_of(name, arg):
        fields = flat(run.config)
        names = [fields[f"{g}.{part}"] for g in NAMED for part in ("name", "options")]
        kind = fields["model.kind"]
        alike[(*names, kind, fields["title"])].append(fields)
    for key, configs in alike.items():
        assert run_configs.dividing(configs) == [], key


@pytest.mark.fast
@pytest.mark.parametrize(
    ("name", "arg", "runs", "programs"),
    [
        ("ruoss2023", "form=full", 15 * 11 * PAPER_RUNS, 15 * 11),
        ("ruoss2023", "form=medium", 15 * 11 * 3, 15 * 11),
        ("ruoss2023", "form=mini", 4 * 2 * 3, 4 * 2),
        ("ruoss2023", "form=range", 4 * 4 * 3, 4 * 4),
        ("ruoss2023", "form=test_positions", 4 * 3, 4),
        ("ruoss2023", "form=draws", 4 * 4 * 3, 4 * 4),
        ("ruoss2023", "form=sorting", 4 * 2 * 3, 4 * 2),
        ("ruoss2023", "form=causal", 4 * 2 * 3, 4 * 2),
        ("ruoss2023", "form=depth", 4 * 3 * 3, 4 * 3),
        ("ruoss2023", "form=learning_rate", 4 * 3 * 3, 4),
        ("ruoss2023", "form=what_helps", 2 * 9, 2 * 8),
        ("ruoss2023", "form=further", 3 * 3, 3),
        ("ruoss2023", "form=causal,scale=full", 15 * 2 * PAPER_RUNS, 15 * 2),
        ("deletang2022", "form=full", 15 * (5 + 4) * PAPER_RUNS, 15 * (5 + 4)),
        ("deletang2022", "form=medium", 15 * (5 + 4) * 3, 15 * (5 + 4)),
        ("deletang2022", "form=mini", (3 + 3) * 3, 3 + 3),
        ("su_robustness", "form=full", 3 * 2 * 3 * PAPER_RUNS, 3 * 2 * 3),
        ("su_robustness", "form=mini", 3 * 2 * 3 * 3, 3 * 2 * 3),
    ],
)
def test_a_form_has_the_runs_and_programs_that_it_says(name, arg, runs, programs):
    found = runs_of(name, arg)
    assert len(found) == runs
    assert len({run.group for run in found}) == programs
    header = (FOLDER / f"{name}.py").read_text().split('"""')[1]
    form = arg.removeprefix("form=").split(",")[0]
    if arg == f"form={form}" and form in ("full", "medium", "mini"):
        assert f"{runs:,} runs" in header
    assert "Cost, " in header
    assert "{" not in header


@pytest.mark.fast
def test_the_whole_table_is_trained_and_scored_as_published():
    """Ruoss et al. 2023 and Deletang et al. 2022, appendix A."""
    runs = runs_of("ruoss2023", "form=full")
    cells = collections.Counter(
        (
            config["task"]["name"],
            config["encoding"]["name"],
            config["positions"]["name"],
        )
        for config in (run.config for run in runs)
    )
    assert set(cells.values()) == {PAPER_RUNS}
    assert len({task for task, _, _ in cells}) == PAPER_TASKS
    plain = {encoding for _, encoding, scheme in cells if scheme == "consecutive"}
    randomized = {encoding for _, encoding, scheme in cells if scheme == "randomized"}
    assert plain == randomized | {"none"}
    assert len(randomized) == 5
    for run in runs:
        train, model = run.config["train"], run.config["model"]
        assert (train["max_length"], train["batch_size"]) == (40, 128)
        assert lengths.parse(run.evaluations[0]["lengths"]) == tuple(range(1, 501))
        sizes = (model["num_layers"], model["embed_dim"], model["num_heads"])
        assert sizes == (5, 64, 8)
    assert {run.config["optim"]["learning_rate"] for run in runs} == {1e-4, 3e-4, 5e-4}


@pytest.mark.fast
def test_tables_of_studies_hold_every_task_of_the_benchmark():
    tasks = {run.config["task"]["name"] for run in runs_of("ruoss2023", "form=medium")}
    assert tasks <= set(TASKS)
    assert len(tasks) == PAPER_TASKS


@pytest.mark.fast
@pytest.mark.parametrize(
    ("form", "changed"),
    [
        ("range", {"positions.options"}),
        ("draws", {"positions.options"}),
        ("sorting", {"positions.options"}),
        ("causal", {"model.causal"}),
        ("depth", {"model.num_layers"}),
        ("learning_rate", {"optim.learning_rate"}),
        ("test_positions", set()),
    ],
)
@pytest.mark.parametrize("scale", ["mini", "full"])
def test_an_ablation_changes_one_thing(form, changed, scale):
    runs = runs_of("ruoss2023", f"form={form},scale={scale}")
    numbers = 3 if form == "learning_rate" else 1  # choices within a compiled program
    one_cell = [
        flat(run.config)
        for run in runs
        if run.config["task"] == runs[0].config["task"]
        and run.rank in [(0, choice) for choice in range(numbers)]
    ]
    differing = {
        name
        for fields in one_cell[1:]
        for name in fields
        if name != "title" and fields[name] != one_cell[0][name]
    }
    assert differing == changed
    assert len(runs[0].evaluations) == (3 if form == "test_positions" else 1)


@pytest.mark.parametrize(
    ("name", "arg"),
    [
        ("ruoss2023", "form=full"),
        ("ruoss2023", "form=draws"),
        ("deletang2022", "form=mini"),
        ("su_robustness", "form=mini"),
    ],
)
def test_each_kind_of_model_and_positions_of_a_study_can_be_built(name, arg):
    """On the task with the most tokens, where ids would run out first."""
    kinds = {}
    for run in runs_of(name, arg):
        config = run.config
        parts = [config[group] for group in ("model", "encoding", "positions")]
        kind = repr([parts, run.evaluations])
        longest = ("reverse_string", "duplicate_string").count(config["task"]["name"])
        if kind not in kinds or longest:
            kinds[kind] = run
    for run in kinds.values():
        for settings in run.evaluations:
            built = build.build(run.config | {"eval": settings})
            title = ALL_TASKS[run.config["task"]["name"]].title
            assert built.recipe.task.title == title


@pytest.mark.fast
@pytest.mark.parametrize("form", ["full", "mini"])
def test_masked_text_is_trained_and_tested_as_in_sus_article(form, tmp_path):
    """On 64 symbols, to 512; of a text of one's own, if it is named."""
    file = tmp_path / "a text.txt"
    file.write_text("some text, again and again. " * 300)
    runs = runs_of("su_robustness", f"form={form},text={file}")
    runs = [run for run in runs if run.config["task"]["name"] == "masked_text"]
    for run in runs[:1]:
        recipe = build.build(run.config).recipe
        assert recipe.task == MaskedText(path=str(file))
        assert recipe.curriculum == Fixed(64)
        assert lengths.parse(run.evaluations[0]["lengths"])[-1] == 512


@pytest.mark.fast
@pytest.mark.parametrize("name", NAMES)
def test_mini_forms_are_estimated_to_end_in_half_an_hour_on_two_cores(name):
    """Of recurrent networks, whose steps wait for each other, much less is counted."""
    runs = runs_of(name, "form=mini")
    costs = Costs(runs, {})
    assert 0.2 * 3600 < sum(map(costs.seconds, runs)) <= 3600


@pytest.mark.fast
@pytest.mark.parametrize(
    ("name", "arg", "message"),
    [
        ("ruoss2023", "form=huge", "form must be one of full, medium, mini, range"),
        ("ruoss2023", "form=mini,scale=full", "leave scale out"),
        ("ruoss2023", "form=draws,scale=big", "scale must be one of"),
        ("ruoss2023", "form=what_helps,scale=full", "leave scale out"),
        ("deletang2022", "form=draws", "form must be one of full, medium, mini"),
        ("su_robustness", "from=mini", "Did you mean form"),
    ],
)
def test_unknown_forms_are_refused(name, arg, message):
    with pytest.raises(ValueError, match=message):
        runs_of(name, arg)
