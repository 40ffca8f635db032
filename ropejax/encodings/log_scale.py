"""Log-n scaling: the more keys a query sees, the sharper its softmax must be.

With n keys the entropy of attention grows like log n; multiplying queries by log n
keeps it steady. A factor learned along in training and one put on afterwards are
different models, so the form is a choice.
"""

import dataclasses
import math
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ropejax.encodings.base import Dims, Encoding, Views
from ropejax.encodings.choices import check_choice, not_negative, positive
from ropejax.encodings.own_segment import own_counts, segment_keys
from ropejax.encodings.rotary_base import current_length
from ropejax.tokens import Tokens
from ropejax.typing import Params
from ropejax.whole_numbers import whole_number

Form = Literal["post_hoc", "trained", "natural", "steps"]
FORMS = ("post_hoc", "trained", "natural", "steps")


def log_scale(
    count: Int[Array, "*B"],
    *,
    form: Form = "post_hoc",
    train_length: int = 512,
    weight: float = 0.1,
    least: int = 1,
) -> Float[Array, "*B"]:
    """Returns the factor on queries that see `count` keys, float32.

    With n the count, at least `least`, and N the trained length: `max(1, ln n / ln N)`
    ("post_hoc"), `ln n / ln N` ("trained"), `ln n` ("natural"), or
    `1 + weight ln(1 + floor(n / N))` ("steps").

    Args:
        count: number of keys, `[*B]`.
        form: one of the above.
        train_length: N, in tokens.
        weight: of the logarithm in "steps".
        least: counts below it are raised to it; bert4keras has 16.

    Returns:
        Factors `[*B]`.

    Raises:
        ValueError: if the form is unknown, or a number is out of range: a trained
            length or a least count of which there is no logarithm to divide by.
    """
    check_choice("form", form, FORMS)
    least = whole_number("least", least)
    train_length = whole_number("train_length", train_length)
    positive(least=least)
    not_negative(weight=weight)
    if train_length < 2:
        raise ValueError(f"train_length must exceed 1, got {train_length}.")
    n = jnp.maximum(jnp.asarray(count), least).astype(jnp.float32)
    if form == "steps":
        return 1 + weight * jnp.log1p(jnp.floor(n / train_length))
    if form == "natural":
        return jnp.log(n)
    ratio = jnp.log(n) / math.log(train_length)
    return jnp.maximum(ratio, 1.0) if form == "post_hoc" else ratio


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogScale(Encoding):
    """Multiplies each query by a factor that grows with the number of keys it sees.

    A query at index i sees i + 1 keys (`count="causal"`), whatever its position, so
    appending tokens changes no earlier row; `count="earlier"` leaves its own out.
    Without a causal mask all queries see all valid keys (`count="all"`), and the factor
    depends on the length. Segments are sequences of their own: a query counts within
    its own. Masks other than these are not counted.

    Attributes:
        form: "post_hoc" for models trained without (Su's articles and bojone's code);
            "trained" for models trained with it (N = 512 there, usually the trained
            length); "natural" for Chiang and Cholak's `ln n`; "steps" for Llama 4's
            temperature (N = 8192, weight 0.1 in its configs) and, with
            `count="earlier"`, that of Ministral 3 and Mistral 4 (N = 16384 or 8192).
        train_length: N, in tokens.
        count: what counts of what a query sees: "causal", "earlier" or "all".
        weight: of the logarithm in "steps".
        least: counts below it are raised to it.

    References:
        Su (2021-2023), spaces.ac.cn/archives/8823, 9034, 9444, 9706;
        bojone/rerope@acfe788; Chiang and Cholak (2022), arXiv:2202.12172.

    Example:
        >>> import jax.numpy as jnp
        >>> from ropejax.encodings.log_scale import log_scale
        >>> log_scale(jnp.array([4, 16, 64]), train_length=16).tolist()
        [1.0, 1.0, 1.5]
    """

    form: Form = "post_hoc"
    train_length: int = 40
    count: Literal["causal", "earlier", "all"] = "causal"
    weight: float = 0.1
    least: int = 1

    title: ClassVar[str] = "Log-n scaling"
    summary: ClassVar[str] = "queries multiplied by the logarithm of the keys they see"
    reference: ClassVar[str] = "Su 2021, spaces.ac.cn/archives/8823"

    def __post_init__(self):
        super().__post_init__()
        check_choice("form", self.form, FORMS)
        check_choice("count", self.count, ("causal", "earlier", "all"))
        positive(least=self.least)
        not_negative(weight=self.weight)
        if self.train_length < 2:
            raise ValueError(f"train_length must exceed 1, got {self.train_length}.")

    @property
    def places_queries(self) -> bool:
        """False: queries keep their directions."""
        return False

    @property
    def length_dependent(self) -> bool:
        """True if all keys count."""
        return self.count == "all"

    @property
    def causal_only(self) -> bool:
        """True if counts are those of a causal mask."""
        return self.count != "all"

    def prepare(
        self, shared: Params, layer: Params, query: Tokens, key: Tokens, dims: Dims
    ) -> Params:
        """Returns the number of valid keys, `[B or 1]`, if all count.

        With segments, what is to be known of the keys to count in a token's own.
        """
        params = {**shared, **layer}
        if key.segments is not None:
            return params | {"segment_keys": segment_keys(key)}
        if self.count != "all":
            return params
        if key.valid is None:
            return params | {"num_keys": current_length(key)}
        return params | {"num_keys": key.valid.sum(axis=1)}

    def queries(
        self, params: Params, q: Float[Array, "B T N H"], query: Tokens
    ) -> Views:
        """Returns queries times their factors."""
        return (self.rescaled(params, q, query),)

    def rescaled(self, params: Params, numbers: Any, query: Tokens) -> Any:
        """Returns numbers of queries `[B, T, N, ...]` times the factors of these."""
        if "segment_keys" in params:
            own = own_counts(params["segment_keys"], query)
            count = own.valid if self.count == "all" else own.before
        elif self.count == "all":
            count = params["num_keys"][:, None]
        else:
            count = query.index + 1
        if self.count == "earlier":
            count = count - 1
        factor = log_scale(
            count,
            form=self.form,
            train_length=self.train_length,
            weight=self.weight,
            least=self.least,
        )
        factor = factor[..., None, None]
        return jax.tree.map(
            lambda x: (x.astype(jnp.float32) * factor).astype(x.dtype), numbers
        )
