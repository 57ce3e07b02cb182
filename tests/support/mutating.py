"""Inputs made of good ones: random damage, and damage that knows the format."""

import io
import json
import re
import struct

import numpy as np

from veilmap._util import archives, seals

_NUMBERS = [0, 1, -1, 2, 127, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1]
_TEXTS = [b"", b"NaN", b"inf", b"-1", b"1e308", b"1e999", b"null", b"[]", b"{}", b"0x10", b'"',
          b"\x00", b"\xff\xfe", b"../../etc/passwd", b"/vsicurl/http://127.0.0.1:9/a",
          b"[" * 2000, b"{" + b'"a":{' * 500, b"9" * 5000, b",,,,", b"\n\n", b"\r",
          b"<OGRVRTDataSource>", b"SQLite format 3\x00", b"type"]  # fmt: skip
_VALUES = [None, True, 0, -1, 1.5, 1e308, 10**30, float("nan"), float("inf"), "", "x", "-1",
           "NaN", [], {}, [[]], [None], {"type": "Grid"}, {"type": "nothing"}, "a" * 5000,
           [0] * 1000]  # fmt: skip
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def mutated(corpus, rng):
    """An input: one of the corpus, damaged once or some times."""
    content = rng.choice(corpus)
    kinds = [_bytes]
    if content[:1] in b"{[" and content:
        kinds += [_of_json] * 2
    if content[:2] == b"PK":
        kinds += [_of_arrays] * 2
    if b"\0" not in content[:200]:
        kinds.append(_of_text)
    kind = rng.choice(kinds)
    content = bytes(kind(content, corpus, rng))
    return _sealed(content) if rng.random() < 0.7 else content


def _sealed(content):
    """The same with a seal that fits, so that damage gets past it."""
    found = seals._SEAL.search(content)
    if found is None:
        return content
    blank = content[: found.start()] + seals.BLANK.encode() + content[found.end() :]
    return bytes(seals.sealed(blank))


def _bytes(content, corpus, rng):
    whole = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 16])):
        at = (
            rng.randrange(len(whole) + 1)
            if rng.random() < 0.5
            else rng.randrange(min(400, len(whole) + 1))
        )
        step = rng.randrange(8)
        if step == 0 and whole:
            whole[at % len(whole)] ^= 1 << rng.randrange(8)
        elif step == 1 and whole:
            whole[at % len(whole)] = rng.randrange(256)
        elif step == 2:
            size, order = rng.choice("bhiq"), rng.choice("<>")
            number = rng.choice(_NUMBERS) & (1 << 8 * struct.calcsize(size)) - 1
            packed = struct.pack(order + size.upper(), number)
            whole[at : at + len(packed)] = packed
        elif step == 3:
            del whole[at : at + rng.choice([1, 2, 4, 8, 64, 1000])]
        elif step == 4:
            other = rng.choice(corpus)
            start = rng.randrange(len(other) + 1)
            whole[at:at] = other[start : start + rng.choice([1, 4, 16, 200])]
        elif step == 5:
            del whole[at:]
        elif step == 6:
            whole[at:at] = rng.choice(_TEXTS)
        else:
            whole[at : at + 4] = rng.randbytes(4)
    return whole


def _of_text(content, corpus, rng):
    """One number is another, or something else."""
    found = list(_NUMBER.finditer(content))
    if not found:
        return _bytes(content, corpus, rng)
    one = rng.choice(found)
    new = rng.choice([*_TEXTS, *(str(number).encode() for number in _NUMBERS)])
    return content[: one.start()] + new + content[one.end() :]


def _of_json(content, corpus, rng):
    """One value is another, is missing, or is there in another's place."""
    try:
        whole = json.loads(content)
    except ValueError:
        return _bytes(content, corpus, rng)
    places = list(_places(whole))
    for _ in range(rng.choice([1, 1, 2])):
        if not places:
            break
        inside, key = rng.choice(places)
        if isinstance(inside, list) and key >= len(inside):
            continue
        step = rng.randrange(4)
        if step == 0 and isinstance(inside, dict):
            inside.pop(key, None)
        elif step == 1:
            other, name = rng.choice(places)
            if not (isinstance(other, list) and name >= len(other)) and name in _keys(other):
                inside[key] = json.loads(json.dumps(other[name]))
        else:
            inside[key] = rng.choice(_VALUES)
    return json.dumps(whole).encode()


def _keys(inside):
    return inside if isinstance(inside, dict) else range(len(inside))


def _places(whole):
    for key in _keys(whole) if isinstance(whole, dict | list) else ():
        yield whole, key
        yield from _places(whole[key])


def _of_arrays(content, corpus, rng):
    """One array is of another shape, type or value, or text is other text."""
    with np.load(io.BytesIO(content)) as file:
        arrays = {name: file[name] for name in file.files}
    name = rng.choice(sorted(arrays))
    old = arrays[name]
    step = rng.randrange(7)
    if step == 0:
        del arrays[name]
    elif step == 1:
        arrays[name] = np.zeros(rng.choice([(), (0,), (1,), (3, 4), (2, 2, 2), old.shape[::-1]]))
    elif step == 2:
        arrays[name] = (
            old.astype(rng.choice(["U10", "c16", "f4", "b1"]), casting="unsafe")
            if (old.dtype.kind in "biuf")
            else np.array(rng.choice(["", "[", "[]", "{}", "null", "[[1]]", "x" * 1000]))
        )
    elif step == 3 and old.dtype.kind == "f" and old.size:
        changed = np.array(old)
        changed.flat[rng.randrange(old.size)] = rng.choice([np.nan, np.inf, -1e30, 1e30, 1e-30])
        arrays[name] = changed
    elif step == 4:
        arrays[name] = np.array(rng.choice([-1, 0, 1e9, np.nan, np.inf]))
    elif step == 5 and old.dtype.kind == "U":
        arrays[name] = np.array(_of_json(str(old).encode(), [b"x"], rng).decode(errors="replace"))
    else:
        arrays[rng.choice(sorted(arrays))] = old
    return archives._packed(arrays, compressed=rng.random() < 0.5)
