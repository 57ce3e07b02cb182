"""What a map knows of a base station by its id."""

from veilmap._util.ids import Id
from veilmap.errors import ConfigurationError
from veilmap.layers.layer import Attribute
from veilmap.model.radio_map import RadioMap

_SHOWN = 5


def checked(station: Id, *radio_maps: RadioMap) -> str:
    """``station`` as text, unless the maps list their base stations and this is none of them.

    A map without offsets and fields has no such list: there any id may be one.
    """
    trained: set[str] = set()
    for radio_map in radio_maps:
        trained |= {*map(str, radio_map.offsets.stations)}
        if radio_map.field is not None:
            trained |= {*map(str, radio_map.field.ids)}
    if trained and str(station) not in trained:
        raise ConfigurationError(
            f"the map knows no base station {station}; {such_as(sorted(trained))}"
        )
    return str(station)


def such_as(ids: list[str]) -> str:
    """Some of the ids, for a message."""
    more = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
    return f"there are {', '.join(ids[:_SHOWN])}{more}"


def facts(radio_map: RadioMap, station: Id) -> dict[str, Attribute]:
    """What the values of its layers depend on, for their metadata."""
    name = checked(station, radio_map)
    known: dict[str, Attribute] = {"base_station": name}
    offsets, antennas = radio_map.offsets, radio_map.antennas
    stations = [*map(str, offsets.stations)]
    if name in stations:
        known["offset_db"] = offsets.values[stations.index(name)]
    if antennas is not None and name in antennas.stations:
        number = antennas.stations.index(name)
        known["azimuth_deg"] = antennas.azimuths[number]
        known["beam_width_deg"] = antennas.beam_widths[number]
    return known
