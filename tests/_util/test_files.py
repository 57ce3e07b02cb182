import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import veilmap as vm
from refusals import refused
from veilmap._util import files
from veilmap.errors import DataError


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path):
    path = tmp_path / "kept.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), files.replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["kept.txt"]


def test_a_full_disk_is_one_clear_line(tmp_path):
    with (
        refused(DataError, tmp_path / "kept.txt", "No space left on device"),
        files.replacing(tmp_path / "kept.txt"),
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
    files.write_text("spent", path)
    assert path.read_text() == "spent"
    assert moved == [True]


def test_files_are_readable_as_usual(tmp_path):
    umask = os.umask(0o022)
    try:
        with files.replacing(tmp_path / "deep" / "new.txt") as temporary:
            temporary.write_text("new")
    finally:
        os.umask(umask)
    assert (tmp_path / "deep" / "new.txt").stat().st_mode & 0o777 == 0o644


def test_a_replaced_file_is_durable_before_and_after_its_new_name(tmp_path, monkeypatch):
    path, steps, fsync, replace = tmp_path / "kept.txt", [], os.fsync, Path.replace

    def synced(handle):
        status = os.fstat(handle)
        steps.append("folder" if stat.S_ISDIR(status.st_mode) else f"file of {status.st_size}")
        if stat.S_ISDIR(status.st_mode):
            assert status.st_ino == tmp_path.stat().st_ino
        fsync(handle)

    def renamed(self, target):
        steps.append("new name")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    files.write_text("four", path)
    assert steps == ["file of 4", "new name", "folder"]


def test_a_second_holder_is_refused_and_told_who_has_the_lock(tmp_path):
    path = tmp_path / "deep" / ".lock"
    with files.locked(path):
        told = json.loads(path.read_text())
        assert told["pid"] == os.getpid()
        with pytest.raises(vm.VeilmapError) as refusal, files.locked(path):
            pass
        assert all(str(told[name]) in str(refusal.value) for name in ("pid", "host", "since"))
        assert json.loads(path.read_text()) == told
    with files.locked(path):
        pass
    assert path.read_bytes() == b""


def test_a_failure_inside_releases_the_lock(tmp_path):
    with pytest.raises(RuntimeError), files.locked(tmp_path / ".lock"):
        raise RuntimeError
    with files.locked(tmp_path / ".lock"):
        pass


HOLD = """
import sys
from pathlib import Path
from veilmap._util import files
with files.locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_killed_process_releases_its_lock(tmp_path, holder):
    with (
        refused(DataError, f"process {holder.pid}"),
        files.locked(tmp_path / ".lock"),
    ):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with files.locked(tmp_path / ".lock"):
        assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()


def test_a_lock_that_is_released_in_time_is_worth_waiting_for(tmp_path, holder, monkeypatch):
    def let_go(_seconds):
        if holder.poll() is None:
            holder.communicate("\n")

    monkeypatch.setattr(files.time, "sleep", let_go)
    with files.locked(tmp_path / ".lock", wait=60):
        assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()


def test_a_secret_is_its_owners_alone_from_the_first_byte_on(tmp_path):
    path = tmp_path / "key"
    with files.replacing(path, secret=True) as temporary:
        temporary.write_text("secret")
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# ---- Folders and names


def test_new_folders_are_durable_each_in_the_one_above(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino) or fsync(handle)
    )
    files.write_text("x", tmp_path / "a" / "b" / "kept.txt")
    for folder in (tmp_path, tmp_path / "a", tmp_path / "a" / "b"):
        assert folder.stat().st_ino in synced


def test_what_is_secret_is_the_owners_alone_from_the_first_byte_on_with_its_folders(tmp_path):
    umask = os.umask(0)
    try:
        with files.replacing(tmp_path / "a" / "b" / "key", secret=True) as temporary:
            assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
        with files.open_log(tmp_path / "logs" / "log"), files.locked(tmp_path / "c" / ".lock"):
            made = list(tmp_path.rglob("*"))
    finally:
        os.umask(umask)
    assert len(made) == 7
    for path in made:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_only_what_killed_writers_have_left_is_removed(tmp_path):
    ours, others = tmp_path / "ours", tmp_path / "others"
    ours.mkdir()
    others.mkdir()
    left = ".veilmap-0123456789abcdef.part.npz"
    for name in (".my-notes", ".aws-credentials", f"{left}.txt.old", ".veilmap-01.part", "a.npz"):
        (ours / name).write_text("kept")
    (others / left).write_text("kept")
    (ours / "link").symlink_to(others)
    (ours / left.replace("0", "1")).symlink_to(others / left)
    (ours / left.replace("0", "2")).mkdir()
    before = sorted(tmp_path.rglob("*"))
    (ours / left).write_text("half a file")
    (ours / ".veilmap-0123456789abcdef.part").write_text("half a file")
    with files.replacing(ours / "written.nc") as temporary:  # by somebody who lives
        temporary.write_text("whole")
        files.remove_unfinished(ours)
        files.remove_unfinished(ours / "link")
        assert temporary.exists()
    (ours / "written.nc").unlink()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_lock_is_neither_a_link_to_something_else_nor_a_pipe(tmp_path):
    (tmp_path / "key").write_text("precious")
    (tmp_path / "link").symlink_to("key")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with refused(DataError, tmp_path / name), files.locked(tmp_path / name):
            pass
    assert (tmp_path / "key").read_text() == "precious"
