"""Which panels show a position encoding: chosen by what its hooks do, never by name."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from matplotlib.axes import Axes

from experiments.gallery import pictures, traits
from experiments.gallery import rotary_pictures as rotary
from experiments.gallery.pictures import Variants
from ropejax.encodings import Encoding


class Panel(NamedTuple):
    """A kind of picture, and the encodings for which it means something.

    Attributes:
        title: what is shown.
        applies: True if an encoding has it to show.
        draw: draws all variants together, or a single one if `each`.
        each: True for a panel a variant.
    """

    title: str
    applies: Callable[[Encoding], bool]
    draw: Callable[[Axes, Variants], None]
    each: bool = False


PANELS = (
    Panel(
        "Weights, causal",
        traits.does_nothing,
        pictures.counting_weights,
    ),
    Panel("Position vectors", traits.is_absolute, pictures.position_vectors, each=True),
    Panel("Similarity", traits.is_absolute, pictures.similarity, each=True),
    Panel(
        "Similarity by distance", traits.is_absolute, pictures.similarity_by_distance
    ),
    Panel("Distance seen", traits.bends_distances, rotary.seen_distances),
    Panel(
        "Distance seen, pair by pair",
        traits.groups_positions,
        rotary.seen_distance_matrix,
        each=True,
    ),
    Panel(
        "Wavelengths",
        lambda e: (
            traits.is_rotary(e)
            and not traits.is_on_axes(e)
            and not traits.bends_distances(e)
        ),
        rotary.wavelengths,
    ),
    Panel("Change of frequency", traits.is_extended, rotary.frequency_ratios),
    Panel("Product of equal content", traits.moves_products, rotary.products),
    Panel("Single pairs", traits.shows_pairs, rotary.single_pairs, each=True),
    Panel("Long-term decay, bound", traits.has_bound, rotary.decay_bound),
    Panel("Wavelengths", traits.deals_out_pairs, rotary.axis_wavelengths, each=True),
    Panel(
        "Product of equal content",
        traits.is_on_axes,
        rotary.products_on_grid,
        each=True,
    ),
    Panel("Along one axis", traits.is_on_axes, rotary.products_on_axes, each=True),
    Panel("Values as outputs see them", traits.moves_values, pictures.values),
    Panel("Factor on queries", traits.scales_queries, pictures.query_factors),
    Panel(
        "Factor on weights, by head",
        traits.scales_weights,
        pictures.weight_factors,
        each=True,
    ),
    Panel(
        "Position alone, by head",
        traits.speaks_in_curves,
        pictures.alone_by_head,
        each=True,
    ),
    Panel(
        "Position alone, by head",
        traits.speaks_in_numbers,
        pictures.alone_as_table,
        each=True,
    ),
    Panel(
        "Position alone, head 1",
        traits.is_bias_of_place,
        pictures.alone_as_matrix,
        each=True,
    ),
    Panel(
        "Weights of equal content, past",
        lambda e: traits.is_bias(e) and not traits.is_table(e),
        pictures.alone_weights,
        each=True,
    ),
    Panel("What is left of content", traits.folds, pictures.responses, each=True),
    Panel("Logits of an example", traits.meets_content, pictures.example, each=True),
    Panel(
        "What positions change",
        traits.meets_content,
        pictures.example_by_position,
        each=True,
    ),
)


def panels_of(variants: Variants) -> list[tuple[str, Callable[[Axes], None]]]:
    """Returns title and drawing of each panel that shows these settings of a method."""
    first = next(iter(variants.values()))
    chosen = []
    for panel in PANELS:
        if not panel.applies(first):
            continue
        if not panel.each:
            chosen.append((panel.title, partial(panel.draw, variants=variants)))
            continue
        for label, encoding in variants.items():
            title = f"{panel.title}: {label}" if len(variants) > 1 else panel.title
            chosen.append((title, partial(panel.draw, variants={label: encoding})))
    return chosen
