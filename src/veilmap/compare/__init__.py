"""Ours beside what people use today, on the same folds of the same measurements."""

from veilmap.compare.folds import (
    Fold,
    Splits,
    by_blocks,
    by_users,
    covering_grid,
    few_links,
    without_patterns,
)
from veilmap.compare.methods import (
    BASELINES,
    OURS,
    ComparisonSettings,
    FederatedMap,
    Method,
    PooledMap,
    all_methods,
    methods,
)
from veilmap.compare.running import Comparison, FoldScore, ScoreFile, compare, described_settings

__all__ = [
    "BASELINES",
    "OURS",
    "Comparison",
    "ComparisonSettings",
    "FederatedMap",
    "Fold",
    "FoldScore",
    "Method",
    "PooledMap",
    "ScoreFile",
    "Splits",
    "all_methods",
    "by_blocks",
    "by_users",
    "compare",
    "covering_grid",
    "described_settings",
    "few_links",
    "methods",
    "without_patterns",
]
