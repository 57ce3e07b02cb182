"""Ours beside what people use today, on the same folds of the same measurements."""

from veilmap.compare.folds import Fold, by_blocks, by_users, few_links
from veilmap.compare.methods import BASELINES, OURS, Method, methods
from veilmap.compare.running import Comparison, Score, compare

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
