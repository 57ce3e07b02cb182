"""Ours beside what people use today, on the same folds of the same measurements."""

from veilmap.comparing.folds import Fold, by_blocks, by_users, few_links
from veilmap.comparing.methods import BASELINES, OURS, Method, methods
from veilmap.comparing.running import Comparison, Score, compare

__all__ = [
    "BASELINES",
    "OURS",
    "Comparison",
    "Fold",
    "Method",
    "Score",
    "by_blocks",
    "by_users",
    "compare",
    "few_links",
    "methods",
]
