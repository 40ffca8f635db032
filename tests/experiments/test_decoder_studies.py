"""The configs of decoder-only models and their studies: every form can be run."""

import pytest

from configs import arithmetic, decoder, running_sums
from configs.studies import arithmetic as arithmetic_study
from configs.studies import kazemnejad2023
from experiments import lengths
from experiments.building.build import build
from experiments.study.sweep import expand
from ropejax.positions import Abacus, Coupled, CoupledLevels, Randomized


@pytest.mark.fast
@pytest.mark.parametrize(
    ("study", "form", "runs"),
    [
        (kazemnejad2023, "full", 210),
        (kazemnejad2023, "medium", 210),
        (kazemnejad2023, "mini", 45),
        (arithmetic_study, "full", 108),
        (arithmetic_study, "medium", 36),
        (arithmetic_study, "loops", 21),
        (arithmetic_study, "mini", 18),
    ],
)
def test_forms_have_the_runs_that_their_files_tell(study, form, runs):
    arg = f"form={form}"
    config, points = study.get_config(arg), study.get_sweep(arg)
    assert config.study == f"{study.__name__.rpartition('.')[2]}-{form}"
    assert len(expand(config, points)[0]) == len(points) == runs
    assert f"{runs} runs" in study.__doc__


def test_every_way_to_tell_places_of_digits_builds():
    for point in arithmetic_study.get_sweep("form=mini"):
        if point["train.seed"]:
            continue
        config = arithmetic_study.get_config("form=mini")
        config.update_from_flattened_dict(point)
        recipe = build(config).recipe
        kind = {"abacus": Abacus, "coupled": Coupled, "randomized": Randomized}
        if point["positions.name"] in kind:
            assert isinstance(recipe.positions, kind[point["positions.name"]])
        assert recipe.model.loops == 2


@pytest.mark.parametrize("method", running_sums.METHODS)
def test_running_sums_build_with_ids_for_the_longest_test(method):
    built = build(running_sums.get_config(f"method={method}"))
    recipe = built.recipe
    assert recipe.task.task.running_sums
    levels = isinstance(recipe.positions, CoupledLevels)
    assert levels == (method in ("levels", "axes"))
    if levels:  # their symbols are those of the task
        assert recipe.positions.separators == (
            recipe.task.task.plus,
            recipe.task.placeholder,
        )


def test_loops_are_trained_after_all_of_them_and_by_the_progressive_loss():
    seen = set()
    for point in arithmetic_study.get_sweep("form=loops"):
        config = arithmetic_study.get_config("form=loops")
        config.update_from_flattened_dict(point)
        model, train = config.model, config.train
        assert model.num_layers * model.loops == 4
        seen.add((model.loops, train.progressive_weight))
        if train.seed == 0:
            loss = build(config).recipe.progressive
            assert (loss and loss.weight) == (train.progressive_weight or None)
    assert seen == {(1, 0.0)} | {(n, w) for n in (2, 4) for w in (0.0, 0.5, 1.0)}


@pytest.mark.fast
def test_ids_of_the_test_are_trained():
    """Abacus ids reach as far in training as without an offset at the longest sums."""
    for form, tested in (("mini", 20), ("full", 30)):
        config = arithmetic_study.get_config(f"form={form}")
        assert lengths.parse(config.eval.lengths)[-1] == tested
        for point in arithmetic_study.get_sweep(f"form={form}"):
            if point["positions.name"] == "abacus":
                text = point["positions.options"]
                offset = int(text.partition("max_offset=")[2].partition(",")[0])
                # A sum has one digit more than its numbers.
                assert config.train.max_length + 1 + offset == tested + 1


def test_abacus_moves_ids_in_training_and_not_in_the_test():
    experiment = build(arithmetic.get_config("method=abacus,base=rope"))
    assert experiment.recipe.positions.max_offset == 20
    assert experiment.evaluation.positions.max_offset == 0
    assert experiment.evaluation.lengths[-1] == 30


def test_the_published_decoder_is_the_papers():
    """Kazemnejad et al. 2023: 107M parameters, of which embeddings are few here."""
    config = decoder.get_config("task=reverse_string")
    recipe = build(config).recipe
    assert recipe.model.dims == (12, 12, 64, 768, 12, True)
    assert recipe.curriculum.max_length == 20
    assert (config.train.steps, config.optim.warmup_steps) == (40_000, 2400)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: arithmetic.get_config("method=abcus"), "method must be one of plain"),
        (lambda: arithmetic.get_config("base=alibi"), "base must be one of rope, fire"),
        (lambda: decoder.get_config("size=tiny"), "size must be one of published"),
        (lambda: kazemnejad2023.get_sweep("form=big"), "form must be one of full"),
        (lambda: arithmetic_study.get_config("form=big"), "form must be one of full"),
    ],
)
def test_unknown_names_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
