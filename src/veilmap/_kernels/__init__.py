"""Compiled loops: plain arrays and numbers in, plain arrays out.

Nothing here checks its input or knows our classes; the modules above do both. Kernels
release the interpreter lock, so callers run them on several threads over separate links
or users. They are compiled at the first call and cached on disk.
"""

from pathlib import Path

from veilmap._kernels import rows
from veilmap._kernels._freshness import forget_stale

forget_stale(Path(rows.length.stats.cache_path), Path(__file__).parent.glob("*.py"))
