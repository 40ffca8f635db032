"""How many members of a population fit into memory."""

import math

import jax

from ropejax.nn.pairs import logits_a_token
from ropejax.training.population import Population
from ropejax.training.recipe import Recipe


def members_at_once(population: Population, members: int) -> int:
    """Returns how many members to train at once where nothing else is said.

    One on a CPU, where mapping over members is no faster than one after another and
    takes as many times the memory (measured: 0.86 to 1.5 times the time a member). On
    an accelerator as many as half of its memory holds, by what a step keeps for its
    gradient: a few activations and attention weights a layer.

    Args:
        population: what members share.
        members: how many there are.
    """
    device = jax.devices()[0]
    if device.platform == "cpu":
        return 1
    limit = (device.memory_stats() or {}).get("bytes_limit", 2**33)
    sharding = population.recipe.sharding
    devices = 1 if sharding is None else sharding.mesh.size
    fitting = devices * limit // 2 // step_bytes(population.recipe)
    return max(1, min(members, fitting))


def step_bytes(recipe: Recipe) -> int:
    """Returns roughly how much memory one member's step takes, in bytes.

    Each loop of a looped model keeps as much as the first, and of a batch in parts only
    one is there at a time.
    """
    model, dims = recipe.model, recipe.model.dims
    layers = dims.num_layers * (2 if hasattr(model, "cross") else 1)
    rows = recipe.batch_size // recipe.accumulate
    tokens = recipe.task.num_tokens(recipe.buckets[-1])
    logits = 4 * tokens * logits_a_token(model, tokens)
    # A recurrent model has no MLP; what it keeps a token is of the same order.
    settings = getattr(model, "settings", None)
    mlp_dim = settings.mlp_dim if settings else 0
    # Of an MLP before and after its activation, its gate likewise; of a gated unit u
    # and v, what is attended to and that gated.
    wide = 2 * (settings.mlp.num_projections - 1) if settings else 0
    wide = 6 if settings and settings.gated else wide
    channels = tokens * (10 * dims.embed_dim + wide * mlp_dim)
    activations = getattr(model, "loops", 1) * layers * rows * (logits + channels)
    parameters = math.prod((12, layers, dims.embed_dim, dims.embed_dim))
    return 4 * (activations + 4 * parameters)
