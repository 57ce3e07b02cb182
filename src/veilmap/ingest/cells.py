"""Ids of cells, put together from the columns that identify them."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veilmap._util.arrays import Array, Bools, Ints
from veilmap.ingest.exporters import Names, first_of

JOINT = "-"  # between the parts of an id
PARTS = ("mcc", "mnc", "operator", "area", "cell")

# What Android and its apps write where the modem says nothing.
_UNKNOWN = pa.array(["", "-", "-1", "2147483647", "9223372036854775807", "null", "None", "NaN"])
_PLMN = r"^(?P<mcc>\d{3})-?(?P<mnc>\d{2,3})(?:\.0)?$"
_LTE, _UMTS = r"^(LTE|4G)", r"^(UMTS|WCDMA|HSPA|HSDPA|HSUPA|HSPAP|3G)"
# 3GPP TS 36.413, 9.2.1.37: the 28 bits of an LTE cell are 20 of its base station and 8 of its own;
# TS 25.401, 6.1.5: those of a UMTS cell are 12 of its controller and 16 of its own.
_CELLS_OF_LTE, _CELLS_OF_UMTS = 256, 65_536
_LARGEST = 1 << 28


def parts_in(names: Collection[str], cell: Mapping[str, Names]) -> dict[str, str]:
    """The columns among ``names`` that identify a cell, by what they say; none without a cell."""
    found = {part: first_of(wanted, names) for part, wanted in cell.items()}
    found = {part: column for part, column in found.items() if column}
    if "plmn" in found or {"mcc", "mnc"} <= found.keys():
        found.pop("operator", None)
    return found if "cell" in found else {}


def kinds(parts: Collection[str]) -> set[str]:
    """What ids of these parts say."""
    return {"mcc", "mnc", *parts} - {"plmn", "node"} if "plmn" in parts else {*parts} - {"node"}


def ids(
    table: pa.Table, parts: Mapping[str, str], wanted: Collection[str], radio: str = ""
) -> pa.ChunkedArray:
    """The id of every row's cell, such as 302-720-29100-9567049; null where a part is unknown.

    Whole numbers lose leading zeros, which files of different origin write or leave out. ``wanted``
    are the parts to use: both of two files that are to be joined need the same.
    """
    text = {part: known(table.column(column)) for part, column in parts.items()}
    if "plmn" in text:
        split = pc.extract_regex(text.pop("plmn"), _PLMN)
        text |= {"mcc": pc.struct_field(split, [0]), "mnc": _plain(pc.struct_field(split, [1]))}
    if "node" in text:
        text["cell"] = _long(text.pop("node"), text["cell"], table, radio)
    used = [text[part] for part in PARTS if part in text and part in wanted]
    return joined(used)


def joined(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Columns of text as one; null where one of them is."""
    return pc.binary_join_element_wise(*columns, JOINT) if len(columns) > 1 else columns[0]


def known(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Ids as text; null where the file, or a modem, says nothing."""
    text = _plain(pc.utf8_trim_whitespace(column.cast(pa.string())))
    return pc.if_else(pc.is_in(text, _UNKNOWN), None, text)


def _plain(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whole numbers without leading zeros and without decimals."""
    return pc.replace_substring_regex(text, r"^0*(\d+)(\.0+)?$", r"\1")


def _long(
    node: pa.ChunkedArray, cell: pa.ChunkedArray, table: pa.Table, radio: str
) -> pa.ChunkedArray:
    """Cells as the network counts them, from short ids that count from a base station."""
    kind = table.column(radio).cast(pa.string()) if radio else pa.nulls(len(cell), pa.string())
    size = np.where(_matches(kind, _LTE), _CELLS_OF_LTE, 0)
    size = np.where(_matches(kind, _UMTS), _CELLS_OF_UMTS, size)
    numbers = [pc.if_else(pc.match_substring_regex(one, r"^\d{1,9}$"), one, None) for one in
               (node, cell)]  # fmt: skip
    first, own = (one.cast(pa.int64()) for one in numbers)
    factor = pa.array(size)
    whole = pc.add(pc.multiply(first, factor), own).cast(pa.string())
    short = pc.less(own, factor)
    return pc.if_else(pc.fill_null(short, False), whole, cell)


def _matches(text: pa.ChunkedArray, pattern: str) -> Bools:
    found = pc.match_substring_regex(text, pattern, ignore_case=True)
    return np.asarray(pc.fill_null(found, False).to_numpy(zero_copy_only=False), dtype=bool)


def lte(radio: pa.ChunkedArray) -> Bools:
    """The rows of LTE cells."""
    return _matches(radio.cast(pa.string()), _LTE)


def sites(distinct: Array, is_lte: Bools) -> Ints:
    """The site of each cell: LTE cells of one base station share one, others have their own."""
    names = []
    for name, known in zip(distinct.astype(str).tolist(), is_lte.tolist(), strict=True):
        *network, cell = name.split(JOINT)
        if known and cell.isdigit() and _CELLS_OF_LTE <= int(cell) < _LARGEST:
            names.append((*network[:2], int(cell) // _CELLS_OF_LTE))
        else:
            names.append((name,))
    number: dict[tuple[object, ...], int] = {}
    return np.array([number.setdefault(name, len(number)) for name in names], dtype=np.int64)
