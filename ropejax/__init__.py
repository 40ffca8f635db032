"""ropejax: position encodings, attention and length generalization in JAX."""

__version__ = "0.1.0"
