"""How files write times, found out from the times themselves."""

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veilmap._util.arrays import Floats
from veilmap.ingest.problems import FixableError

_SAMPLE = 2000
_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(:(?P<second>\d\d))?"
_REST = r"(?P<fraction>[.,]\d+)?\s?(?P<zone>Z|UTC|[+-]\d\d:?\d\d)?$"


@dataclass(frozen=True)
class Layout:
    """One way to write a time: a name for people, and what it looks like."""

    name: str
    pattern: str
    order: str = ""  # of day and month, where both are possible: "dm" or "md"


ISO = Layout(
    "ISO 8601", rf"^(?P<year>\d{{4}})-(?P<month>\d\d)-(?P<day>\d\d)[T ]{_CLOCK}{_REST}"
)  # fmt: skip
COMPACT = Layout(
    "YYYYMMDDhhmmss",
    r"^(?P<year>(19|20)\d\d)(?P<month>\d\d)(?P<day>\d\d)(?P<hour>\d\d)(?P<minute>\d\d)"
    r"(?P<second>\d\d)$",
)
_SLASHED = rf"^(?P<A>\d{{1,2}})/(?P<B>\d{{1,2}})/(?P<year>\d{{4}}),?[T ]{_CLOCK}{_REST}"
DAY_FIRST = Layout("day/month/year", _SLASHED.replace("<A>", "<day>").replace("<B>", "<month>"))
MONTH_FIRST = Layout("month/day/year", _SLASHED.replace("<A>", "<month>").replace("<B>", "<day>"))
LAYOUTS = (
    ISO,
    Layout(
        "YYYY.MM.DD_hh.mm.ss",
        r"^(?P<year>\d{4})\.(?P<month>\d\d)\.(?P<day>\d\d)_(?P<hour>\d\d)\.(?P<minute>\d\d)\."
        r"(?P<second>\d\d)$",
    ),
    COMPACT,
    Layout(
        "day.month.year",
        rf"^(?P<day>\d{{1,2}})\.(?P<month>\d{{1,2}})\.(?P<year>\d{{4}}),?[T ]{_CLOCK}{_REST}",
    ),
    Layout(
        "year/month/day", rf"^(?P<year>\d{{4}})/(?P<month>\d\d)/(?P<day>\d\d)[T ]{_CLOCK}{_REST}"
    ),
    DAY_FIRST,
)
_FORCED = {"day-first": DAY_FIRST, "month-first": MONTH_FIRST}
DATES = tuple(_FORCED)


def layout_of(text: pa.ChunkedArray, dates: str | None) -> Layout:
    """How most of some texts are written; ISO 8601 where nothing fits."""
    sample = text.drop_null().slice(0, _SAMPLE)
    if dates is not None:
        slashed = pc.match_substring_regex(sample, _plain(_SLASHED))
        if pc.any(slashed).as_py():
            return _FORCED[dates]
    fits = [pc.sum(pc.match_substring_regex(sample, _plain(one.pattern))).as_py() or 0
            for one in LAYOUTS]  # fmt: skip
    best = LAYOUTS[int(np.argmax(fits))]
    if best is not DAY_FIRST or not max(fits):
        return best
    parts = pc.extract_regex(text.drop_null(), _named(DAY_FIRST.pattern))
    first, second = (pc.max(_number(parts, DAY_FIRST.pattern, n)).as_py() for n in ("day", "month"))
    if first > 12 or second > 12:
        return DAY_FIRST if first > 12 else MONTH_FIRST
    raise FixableError(
        f"times such as {sample[0].as_py()} may have the day or the month first: say which as dates"
        " (day-first or month-first)",
        "dates",
        dates="day-first",
    )


def seconds(text: pa.ChunkedArray, layout: Layout) -> Floats:
    """Texts as seconds since 1970, UTC where they name no zone; NaN for what is no time."""
    parts = pc.extract_regex(text, _named(layout.pattern))
    names = _groups(layout.pattern)
    got = {name: _number(parts, layout.pattern, name) for name in
           ("year", "month", "day", "hour", "minute", "second") if name in names}  # fmt: skip
    if "second" in got:
        got["second"] = pc.if_else(pc.is_valid(got["hour"]), pc.fill_null(got["second"], 0), None)
    pieces = [pc.utf8_lpad(got[name].cast(pa.string()), 4 if name == "year" else 2, "0")
              for name in ("year", "month", "day", "hour", "minute", "second")]  # fmt: skip
    day = pc.binary_join_element_wise(*pieces[:3], "-")
    clock = pc.binary_join_element_wise(*pieces[3:], ":")
    moment = pc.strptime(
        pc.binary_join_element_wise(day, clock, "T"), "%Y-%m-%dT%H:%M:%S", "s", error_is_null=True
    )
    found = moment.cast(pa.int64()).cast(pa.float64()).to_numpy(zero_copy_only=False)
    if "fraction" in names:
        part = pc.replace_substring(_text(parts, layout.pattern, "fraction"), ",", ".")
        found = found + _or_zero(pc.if_else(pc.equal(part, ""), None, part))
    if "zone" in names:
        found = found - _zone_seconds(_text(parts, layout.pattern, "zone"))
    return np.asarray(found, dtype=np.float64)


def _groups(pattern: str) -> list[str]:
    return re.findall(r"\(\?P<(\w+)>", pattern)


def _named(pattern: str) -> str:
    """The pattern for Arrow, which wants a name for every group."""
    return re.sub(r"\((?!\?)", "(?:", pattern)


def _plain(pattern: str) -> str:
    return re.sub(r"\?P<\w+>", "", pattern)


def _text(parts: pa.ChunkedArray, pattern: str, name: str) -> pa.ChunkedArray:
    return pc.struct_field(parts, [_groups(pattern).index(name)])


def _number(parts: pa.ChunkedArray, pattern: str, name: str) -> pa.ChunkedArray:
    text = _text(parts, pattern, name)
    return pc.if_else(pc.equal(text, ""), None, text).cast(pa.int64())


def _zone_seconds(zone: pa.ChunkedArray) -> Floats:
    """Seconds ahead of UTC."""
    offset = pc.extract_regex(zone, r"^(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)$")
    sign, hours, minutes = (pc.struct_field(offset, [number]) for number in range(3))
    amount = 3600.0 * _or_zero(hours) + 60.0 * _or_zero(minutes)
    behind = pc.fill_null(pc.equal(sign, "-"), False).to_numpy(zero_copy_only=False)
    return np.where(behind, -amount, amount)


def _or_zero(text: pa.ChunkedArray) -> Floats:
    return np.asarray(text.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False))
