"""Kernels are found compiled until a source changes, and take arguments by name and group."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import TypingError

import veilmap as vm
from veilmap._kernels import links
from veilmap._kernels.arguments import MapArrays, UserGradients, UserLinks
from veilmap._kernels.compiling import forget_stale
from veilmap.geometry.grid import paired

SOURCES = Path(vm.__file__).parent


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


GROUPED = """
import numpy as np, veilmap as vm
from veilmap._kernels import links
radio_map = vm.RadioMap(vm.Grid(1.0, (4, 4)), np.zeros(16))
radio_map.los_weight([[0.5, 0.5, 1.5]], [[3.5, 3.5, 9.0]])
print(sum(links.los_weights.stats.cache_hits.values()))
"""


def test_kernels_are_found_compiled_by_the_next_process(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    hits = [
        subprocess.run(
            [sys.executable, "-c", GROUPED],
            check=True,
            capture_output=True,
            text=True,
            env=environment,
        ).stdout.strip()
        for _ in range(2)
    ]
    assert hits == ["0", "1"]


def test_groups_of_arguments_cannot_change_places():
    radio_map = vm.RadioMap(vm.Grid(1.0, (4, 4)), np.zeros(16))
    frame, terrain, laws = radio_map.kernel_model
    ends, out = paired([[0.5, 0.5, 1.5]], [[3.5, 3.5, 9.0]]), np.empty(1)
    for model in (MapArrays(terrain, frame, laws), MapArrays(frame, laws, terrain)):
        with pytest.raises(TypingError):
            links.los_weights(start=0, stop=1, ends=ends, model=model, out=out)
    own = UserLinks(np.array([0, 1]), ends.user, ends.bs, np.zeros(1))
    made = UserGradients(np.empty(1), np.empty((1, 16)), np.empty((1, 4)))
    with pytest.raises(TypingError):
        links.user_gradients(start=0, stop=1, links=made, model=radio_map.kernel_model, out=own)


def calls_of_kernels(path):
    """Calls of kernels in a source file, each with how many arguments have no name."""
    tree = ast.parse(path.read_text())
    modules = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "veilmap._kernels"
        for alias in node.names
    }
    groups = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "veilmap._kernels.arguments"
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            kernel = isinstance(function, ast.Attribute) and (
                isinstance(function.value, ast.Name) and function.value.id in modules
            )
            if kernel or (isinstance(function, ast.Name) and function.id in groups):
                yield f"{path.name}:{node.lineno}", len(node.args)


def test_kernels_and_their_groups_are_given_arguments_by_name():
    found = [
        call
        for path in sorted(SOURCES.rglob("*.py"))
        if path.parent != SOURCES / "_kernels"
        for call in calls_of_kernels(path)
    ]
    assert len(found) > 30
    assert [place for place, unnamed in found if unnamed > 1] == []


def test_no_kernel_takes_more_than_a_dozen_arguments():
    for path in (SOURCES / "_kernels").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                assert len(node.args.args) <= 12, f"{path.name}: {node.name}"
