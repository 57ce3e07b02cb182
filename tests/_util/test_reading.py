"""Files of strangers: what is no file, too large, too deep, or was damaged."""

import json
import os
import random
import socket
import zipfile

import numpy as np
import pytest

from refusals import refused
from veilmap._util import archives, files, limits, reading, seals
from veilmap.errors import DataError


@pytest.fixture(params=["pipe", "device", "socket", "folder", "loop"])
def no_file(request, tmp_path):
    path = tmp_path / "thing"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "device":
        path.symlink_to("/dev/zero")
    elif request.param == "folder":
        path.mkdir()
    elif request.param == "loop":
        path.symlink_to(path)
    else:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    return path


def test_what_is_no_file_is_refused_at_once(no_file):
    for read in (reading.read_bytes, reading.read_json, files.existing):
        with refused(DataError, no_file):
            read(no_file)


def test_what_is_too_large_is_not_read(tmp_path):
    (tmp_path / "a").write_bytes(bytes(101))
    assert reading.read_bytes(tmp_path / "a", 101) == bytes(101)
    with refused(DataError, tmp_path / "a", 101, 100):
        reading.read_bytes(tmp_path / "a", 100)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(limits.DESCRIPTION_BYTES + 1)
    with refused(DataError, tmp_path / "sparse"):
        reading.read_json(tmp_path / "sparse")


def test_links_are_followed_only_where_somebody_named_the_file(tmp_path):
    (tmp_path / "a").write_text("[]")
    (tmp_path / "link").symlink_to("a")
    assert reading.read_json(tmp_path / "link") == []
    with refused(DataError, tmp_path / "link"):
        reading.read_json(tmp_path / "link", follow=False)
    with refused(DataError, tmp_path / "link"):
        reading.unlinked(tmp_path / "link")


@pytest.mark.parametrize("signs", ["[]", '{"a":}'])
def test_json_has_so_many_levels_and_no_more(tmp_path, signs):
    opening, closing = signs[:-1], signs[-1]

    def nested(levels):
        return opening * (levels - 1) + "[]" + closing * (levels - 1)

    (tmp_path / "a").write_text(nested(limits.JSON_DEPTH))
    reading.read_json(tmp_path / "a")
    for levels in (limits.JSON_DEPTH + 1, 100_000):
        (tmp_path / "a").write_text(nested(levels))
        with refused(DataError, tmp_path / "a"):
            reading.read_json(tmp_path / "a")


def test_a_sealed_file_tells_every_flipped_bit(tmp_path):
    path = tmp_path / "a.json"
    files.write_json({"spent": [["Ada", 3]]}, path, sealed=True)
    assert reading.read_json(path, sealed=True) == {"spent": [["Ada", 3]]}
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with refused(DataError, path):
            reading.read_json(path, sealed=True)
    path.write_text(json.dumps({"spent": []}))
    with refused(DataError, path, "checksum"):
        reading.read_json(path, sealed=True)


# ---- Archives of arrays

ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "text": "Zoë", "one": 3, "b": np.zeros(0, np.int8)}


@pytest.mark.parametrize("compressed", [False, True])
def test_arrays_come_back_and_others_can_read_them(tmp_path, compressed):
    archives.save(tmp_path / "a.npz", ARRAYS, compressed=compressed)
    back = archives.load(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as numpys:
        for name, values in ARRAYS.items():
            for found in (back[name], numpys[name]):
                np.testing.assert_array_equal(found, values)
                assert found.dtype == np.asarray(values).dtype
    back["a"][0, 0] = 7  # as numpy's, they can be changed
    again = tmp_path / "again.npz"
    archives.save(again, ARRAYS, compressed=compressed)
    assert again.read_bytes() == (tmp_path / "a.npz").read_bytes()
    transposed = ARRAYS["a"].T
    archives.save(again, {"a": transposed})
    np.testing.assert_array_equal(archives.load(again)["a"], transposed)


def test_an_archive_tells_every_flipped_bit(tmp_path):
    path = tmp_path / "a.npz"
    archives.save(path, ARRAYS, compressed=True)
    whole, rng = path.read_bytes(), random.Random(0)
    for _ in range(500):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with refused(DataError, path):
            archives.load(path)


def pack(path, parts, packing=zipfile.ZIP_DEFLATED):
    """An archive by a stranger, who can seal as well as we."""
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, content in parts:
            archive.writestr(name, content)
        archive.comment = seals.BLANK.encode()
    path.write_bytes(seals.sealed(path.read_bytes()))


def npy(values, tmp_path, *, pickles=False):
    np.save(tmp_path / "x.npy", values, allow_pickle=pickles)
    return (tmp_path / "x.npy").read_bytes()


def test_a_small_archive_that_would_unpack_to_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "_UNPACKED_BYTES", 1 << 20)
    path = tmp_path / "bomb.npz"
    pack(path, [("a.npy", npy(np.zeros(3 << 20, np.uint8), tmp_path))])
    assert path.stat().st_size < 1 << 14
    with refused(DataError, path):
        archives.load(path)
    # One of ours with as many zeros is written so that it can be read.
    archives.save(path, {"a": np.zeros(3 << 20, np.uint8)}, compressed=True)
    assert not archives.load(path)["a"].any()


def header(shape, kind):
    text = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "content",
    [
        header((10**15,), "<f8") + bytes(8),  # says that it is larger than it is
        header((2**62, 4), "<f8") + bytes(8),
        header((-1,), "<f8") + bytes(8),
        header((1,), "<f8") + bytes(9),
        header((1,), "|O") + bytes(8),
        header((1,), "<M8[s]") + bytes(8),
        header((1,), "|V8") + bytes(8),
        header((), "__import__('os').abort()"),
        b"no array",
        b"",
    ],
)
def test_what_is_no_array_of_numbers_or_text_is_refused(tmp_path, content):
    pack(tmp_path / "a.npz", [("a.npy", content)])
    with refused(DataError, tmp_path / "a.npz"):
        archives.load(tmp_path / "a.npz")


def test_objects_other_files_and_too_many_arrays_are_refused(tmp_path):
    one = npy(np.zeros(1), tmp_path)
    objects = npy(np.array([{}], dtype=object), tmp_path, pickles=True)
    many = [(f"{number}.npy", one) for number in range(limits.ARRAYS + 1)]
    with pytest.warns(UserWarning, match="Duplicate"):
        pack(tmp_path / "a.npz", [("a.npy", one)] * 2)
    with refused(DataError, tmp_path / "a.npz"):
        archives.load(tmp_path / "a.npz")
    for parts in ([("a.npy", objects)], [("a.txt", b"")], many):
        pack(tmp_path / "a.npz", parts)
        with refused(DataError, tmp_path / "a.npz"):
            archives.load(tmp_path / "a.npz")
    pack(tmp_path / "a.npz", [("a.npy", one)], zipfile.ZIP_BZIP2)
    assert archives.load(tmp_path / "a.npz") == {"a": [0.0]}
