"""The most that is taken of a file that may be anybody's: far above real use, below what harms.

Whatever is packed says itself what it unpacks to, and is measured by that before it is unpacked.
"""

_MIB = 1 << 20
_GIB = 1 << 30

DESCRIPTION_BYTES = 16 * _MIB
"""Of a configuration, a design or an audit; one that lists 100,000 base stations has 4 MiB."""

JSON_BYTES = 512 * _MIB
"""Of a ledger, which has a line for every user: 20 million of them fit."""

JSON_DEPTH = 32
"""Levels of lists and objects in JSON; ours have fewer than ten, those of GeoJSON about as many."""

TEXT_BYTES = 16 * _GIB
"""Of a table of text: 100 million measurements take about 8 GiB. It is not packed."""

SHAPES_BYTES = 4 * _GIB
"""Of a GeoJSON or GeoPackage file: the buildings of a whole country as GeoPackage."""

COLUMNS = 10_000
"""Of a table; a wide one has a column for each base station."""

ARRAYS = 100
"""In one archive of arrays; a checkpoint has about a dozen."""

FILE_BYTES = 32 * _GIB
"""Of any other file: single uploads of 1,000 users on a map of a million cells take 4 GB."""

_UNPACKED_BYTES = 256 * _MIB
_UNPACKED_RATIO = 200

RUN_LINKS = 5_000_000
"""Measurements that are held at once to show single users of a run: about 1 GB with all of it."""

SYNTHETIC_USERS = 10_000_000
"""Who measure in a synthetic city that a run names; ten times the largest study."""

NOTE_LETTERS = 10_000
"""Of the notes of a round; Python's CSV reader takes no field of more than 131,072."""

REASON_LETTERS = 200
"""Of what is noted of one participant of a round."""


def unpacked(packed: int) -> int:
    """The most bytes that a file of so many may unpack to.

    Measurements shrink to a tenth at best, heights and uploads with many zeros to a fiftieth; a
    packed file of nothing else shrinks to a thousandth.
    """
    return max(_UNPACKED_BYTES, _UNPACKED_RATIO * packed)
