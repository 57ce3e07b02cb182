import os
from pathlib import Path

import pytest

import veilmap as vm
from veilmap import _files


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path):
    path = tmp_path / "kept.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), _files.replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["kept.txt"]


def test_a_full_disk_is_one_clear_line(tmp_path):
    with (
        pytest.raises(vm.VeilmapError, match="cannot write .*kept.txt: No space left"),
        _files.replacing(tmp_path / "kept.txt"),
    ):
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_on_disk_before_it_takes_the_old_ones_place(tmp_path, monkeypatch):
    path, synced, moved = tmp_path / "kept.txt", {}, []
    real_sync, real_move = os.fsync, Path.replace

    def sync(descriptor):
        state = os.fstat(descriptor)
        synced[state.st_ino] = state.st_size
        real_sync(descriptor)

    def move(self, target):
        state = self.stat()
        moved.append(synced.get(state.st_ino) == state.st_size)
        return real_move(self, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", move)
    _files.write_text("spent", path)
    assert path.read_text() == "spent"
    assert moved == [True]


def test_files_are_readable_as_usual(tmp_path):
    umask = os.umask(0o022)
    try:
        with _files.replacing(tmp_path / "deep" / "new.txt") as temporary:
            temporary.write_text("new")
    finally:
        os.umask(umask)
    assert (tmp_path / "deep" / "new.txt").stat().st_mode & 0o777 == 0o644
