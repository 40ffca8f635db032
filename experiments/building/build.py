"""From a config to objects: the one place where names and numbers become settings.

Everything that can be wrong with a config is refused here, by a ValueError that says
what to do, before anything is compiled or written.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import optax
from ml_collections import ConfigDict

from experiments import lengths
from experiments.building import options
from experiments.building.blocks import make_layers
from experiments.building.checks import (
    Evaluation,
    check_counts,
    check_places,
    check_scorable,
    check_seeds,
)
from experiments.building.encoder_decoder import KIND, make_encoder_decoder
from experiments.building.fields import check_fields
from experiments.building.masks import with_mask
from experiments.building.mesh import make_sharding
from experiments.building.methods import (
    PARTS,
    make_encoding,
    make_positions,
    make_task,
)
from experiments.building.model_parts import made, make_dtype, make_part
from experiments.building.naming import named_in
from experiments.building.optimizers import check_step, make_optimizer
from experiments.building.options import look_up
from experiments.building.pretrained import (
    ENCODING,
    check_alphabet,
    check_keeps_extension,
    check_no_settings,
    checkpoint_spec,
    is_pretrained,
    rounded_like,
)
from experiments.building.progressive import make_progressive
from experiments.building.recurrent import is_recurrent, make_recurrent
from experiments.building.tested_positions import Tested, make_tested
from experiments.building.trained_length import defaults
from experiments.building.weighting import make_weighting
from ropejax.encodings import (
    Dims,
    Encoding,
)
from ropejax.encodings.rotary import RotaryAttention
from ropejax.masks import MASKS
from ropejax.nn import BlockSettings, TransformerSpec
from ropejax.nn.encoder_decoder import EncoderDecoderSpec
from ropejax.nn.patterns import (
    PATTERNS,
    Alike,
    rotary_part,
    with_encodings,
    with_rope,
)
from ropejax.nn.recurrent import RecurrentSpec
from ropejax.tasks import Task
from ropejax.training import CURRICULA, Curriculum, Recipe, even_buckets, schedule


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A config as objects.

    Attributes:
        recipe: what is trained, and how.
        evaluation: how it is scored.
        learning_rate: the schedule, a function of the step.
        steps: optimizer steps in all.
        seed: from which everything random in training follows.
        length_seed: from which lengths follow; `seed` if None.
    """

    recipe: Recipe
    evaluation: Evaluation
    learning_rate: optax.Schedule
    steps: int
    seed: int
    length_seed: int | None = None


def build(config: ConfigDict | Mapping[str, Any]) -> Experiment:
    """Returns the objects that a config describes.

    Args:
        config: as `configs.base.get_config` returns it, or its `to_dict()`.

    Raises:
        ValueError: for whatever is unknown or missing, of another type, out of range,
            or does not fit together.
    """
    check_fields(config)
    config = ConfigDict(config)
    check_seeds(config)
    check_counts(config)
    train = config.train
    task = make_task(config)
    model = make_model(config, task)
    curriculum = make_curriculum(config)
    positions, rate = make_positions(config), make_schedule(config)
    check_places(model, task, positions, train.max_length, "training")
    with named_in(config, "train"):
        recipe = Recipe(
            model=model,
            task=task,
            positions=positions,
            optimizer=_make_optimizer(config),
            curriculum=curriculum,
            buckets=even_buckets(train.max_length, train.buckets),
            batch_size=train.batch_size,
            length_per_row=train.length_per_row,
            nonfinite=train.nonfinite,
            accumulate=train.accumulate,
            sharding=make_sharding(config),
            progressive=make_progressive(config, model),
        )
    check_step(config, recipe)
    evaluation = make_evaluation(config, recipe)
    return Experiment(
        recipe,
        evaluation,
        rate,
        steps=train.steps,
        seed=train.seed,
        length_seed=train.length_seed,
    )


def make_curriculum(config: ConfigDict) -> Curriculum:
    """Returns which lengths the steps of a config see.

    Raises:
        ValueError: if a name or a setting is unknown or out of range.
    """
    train, where = config.train, "train.curriculum_options"
    cls = look_up(train.curriculum, CURRICULA, "train.curriculum", Curriculum)
    given = options.parse(train.curriculum_options, where)
    if "max_length" in given:
        raise ValueError(
            f"{where}={train.curriculum_options!r}: the longest length is "
            f"train.max_length={train.max_length}; set that instead."
        )
    longest = {"max_length": train.max_length}
    return options.construct(cls, given, where, also=longest, defaults=longest)


def make_model(
    config: ConfigDict, task: Task
) -> TransformerSpec | EncoderDecoderSpec | RecurrentSpec:
    """Returns the model of a config for a task, under the config's encoding.

    Raises:
        ValueError: if a name or a setting is unknown, or sizes do not fit each other or
            the encoding.
    """
    if is_pretrained(config):
        return with_mask(config, task, make_pretrained(config, task))
    encoding = make_encoding(config, task)
    with named_in(config, "model"):
        return with_mask(config, task, _make_model(config, task, encoding))


def make_pretrained(config: ConfigDict, task: Task) -> TransformerSpec:
    """Returns the checkpoint of a config as a model, its RoPE as the config says.

    Settings that the config does not give to an encoding are those of the checkpoint's
    RoPE in the same layer. Layers without RoPE stay as they are.

    Raises:
        ValueError: if the checkpoint cannot be read, does not know the task's symbols,
            or has no RoPE that another encoding could stand for.
    """
    spec = checkpoint_spec(config)
    check_alphabet(config, task, spec)
    if config.encoding.name == ENCODING:
        check_no_settings(config)
        return spec
    if not any(rotary_part(kind.encoding) for kind in spec.pattern):
        raise ValueError(
            f"encoding.name={config.encoding.name!r} stands for RoPE, which the "
            f"checkpoint {config.model.pretrained!r} has not; leave it at {ENCODING!r}."
        )

    def under(rope: RotaryAttention) -> Encoding:
        made = make_encoding(config, task, like=rope)
        check_keeps_extension(config, rope, made)
        return rounded_like(rope, made)

    return with_encodings(spec, lambda own: with_rope(own, under))


def _make_model(
    config: ConfigDict, task: Task, encoding: Encoding
) -> TransformerSpec | EncoderDecoderSpec | RecurrentSpec:
    model = config.model
    if is_recurrent(config):
        return make_recurrent(config, task)
    if model.num_heads < 1 or (
        model.head_dim is None and model.embed_dim % model.num_heads
    ):
        raise ValueError(
            f"model.num_heads={model.num_heads} must divide "
            f"model.embed_dim={model.embed_dim}; change one of them, or set "
            "model.head_dim."
        )
    kv_heads = model.num_heads if model.num_kv_heads is None else model.num_kv_heads
    if kv_heads < 1 or model.num_heads % kv_heads:
        raise ValueError(
            f"model.num_kv_heads={kv_heads} must be at least 1 and divide "
            f"model.num_heads={model.num_heads}; leave it out (None) for as many."
        )
    parts = {**PARTS, **MASKS}
    pattern = made(config, "pattern", PATTERNS, Alike, defaults(config, task), parts)
    layers = make_layers(config, PARTS)
    causal = model.causal or model.kind != "encoder"
    spec = TransformerSpec(
        num_symbols=task.num_symbols,
        num_outputs=task.output_vocab,
        dims=Dims(
            num_heads=model.num_heads,
            num_kv_heads=kv_heads,
            head_dim=layers.head_dim,
            embed_dim=model.embed_dim,
            num_layers=model.num_layers,
            causal=causal,
        ),
        settings=BlockSettings(
            **layers.settings,
            norm=make_part(config, "norm"),
            pre_norm=model.pre_norm,
            output_norm=model.output_norm,
            residual_scale=model.residual_scale,
            dropout=model.dropout,
            dtype=make_dtype(config),
            remat=model.remat,
            **make_weighting(config, task),
            attention_scale=model.attention_scale,
            attention_dropout=model.attention_dropout,
        ),
        pattern=pattern(encoding, model.num_layers, causal=causal),
        scan_layers=model.scan_layers,
        loops=model.loops,
        input_injection=model.input_injection,
        readout=make_part(config, "readout"),
        embedding_scale=model.embedding_scale,
        embedding_norm=model.embedding_norm,
    )
    if model.kind == KIND:
        return make_encoder_decoder(config, task, encoding, spec, PARTS)
    return spec


def _make_optimizer(config: ConfigDict) -> optax.GradientTransformation:
    """None where nothing is trained and kept: a large model's state takes memory.

    What begins with another run keeps its step 0, from which it may be trained later.
    """
    if config.train.steps or config.train.init_from:
        return make_optimizer(config)
    return optax.identity()


def make_schedule(config: ConfigDict) -> optax.Schedule:
    """Returns the learning rate of a config by step, over all `train.steps`."""
    try:
        return schedule(
            config.optim.learning_rate,
            steps=config.train.steps,
            warmup_steps=config.optim.warmup_steps,
            final_fraction=config.optim.final_fraction,
        )
    except ValueError as error:
        raise ValueError(f"optim.{error}") from None


def make_evaluation(config: ConfigDict, recipe: Recipe) -> Evaluation:
    """Returns how a config's model is scored.

    Raises:
        ValueError: if a length has no examples or cannot be placed.
    """
    settings = config.eval
    if settings.positions is None and settings.options:
        raise ValueError(
            f"eval.options={settings.options!r} are of no scheme; name it in "
            "eval.positions, or leave both to test with the training positions."
        )
    tested = Tested(recipe.positions, None)
    if settings.positions is not None:
        tested = make_tested(
            config, recipe.positions, settings.positions, settings.options
        )
    evaluation = Evaluation(
        positions=tested.scheme,
        label=tested.label,
        lengths=lengths.parse(settings.lengths, "eval.lengths"),
        samples=settings.samples,
        draws=settings.draws,
        seed=settings.seed,
        buckets=lengths.parse(settings.buckets, "eval.buckets")
        if settings.buckets
        else None,
    )
    check_scorable(evaluation, recipe.model, recipe.task, recipe.sharding)
    return evaluation
