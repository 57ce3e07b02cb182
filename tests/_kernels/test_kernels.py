"""Kernels that were compiled before are used again, but never after any of them has changed."""

import os
import subprocess
import sys

from veilmap._kernels._freshness import forget_stale


def compiled(folder):
    return sorted(path.name for path in folder.glob("*.nb*"))


def test_what_was_compiled_is_kept_until_a_source_changes(tmp_path):
    sources = [tmp_path / "one.py", tmp_path / "two.py"]
    for source in sources:
        source.write_text("x = 1\n")
    cache = tmp_path / "cache"
    forget_stale(cache, sources)  # nothing there yet
    (cache / "one.f-1.nbi").touch()
    (cache / "one.f-1.1.nbc").touch()
    (cache / "one.pyc").touch()
    forget_stale(cache, reversed(sources))
    assert compiled(cache) == ["one.f-1.1.nbc", "one.f-1.nbi"]
    sources[1].write_text("x = 2\n")
    forget_stale(cache, sources)
    assert compiled(cache) == []
    assert (cache / "one.pyc").exists()


def test_a_folder_from_before_the_note_is_cleared(tmp_path):
    (tmp_path / "one.f-1.nbi").touch()
    forget_stale(tmp_path, [])
    assert compiled(tmp_path) == []


def test_kernels_are_found_compiled_by_the_next_process(tmp_path):
    script = (
        "import numpy as np; from veilmap._kernels import rows; rows.length(np.ones(3));"
        "print(sum(rows.length.stats.cache_hits.values()))"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    hits = [
        subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, text=True,
            env=environment,
        ).stdout.strip()
        for _ in range(2)
    ]  # fmt: skip
    assert hits == ["0", "1"]
