"""Small surveys for tests: a folder as `veilmap survey run` leaves it, and what audits say."""

import json

import numpy as np

import veilmap as vm
from veilmap.surveys.design import Station
from veilmap.surveys.folder import SurveyFolder
from veilmap.surveys.surveying import survey

AREA = (0.0, 0.0, 1000.0, 800.0)
MASTS = (("north", 500.0, 700.0, 20.0), ("south", 400.0, 100.0, 25.0))
USERS = 600


def people(names, seed=0):
    """Readings of 600 people, one each, 4 dB around a law with a level of its own."""
    generator = np.random.default_rng(seed)
    masts = np.array([place for _, *place in MASTS])
    station = generator.integers(0, len(masts), USERS)
    xy = generator.uniform(0, AREA[2:], (USERS, 2))
    apart = np.hypot(*(xy - masts[station, :2]).T)
    level = np.array([-60.0, -70.0])[station]
    gain = level - 30 * np.log10(np.maximum(apart, 10) / 100) + generator.normal(0, 4, USERS)
    user_xyz = np.column_stack([xy, np.full(USERS, 1.5)])
    return vm.Measurements(
        np.arange(USERS), user_xyz, masts[station], gain, np.array(names)[station]
    )


def designed(names=("north", "south"), **changes):
    """A public design; the beam of the second base station is known."""
    beams = ({}, {"azimuth_deg": 0.0, "beam_width_deg": 90.0})
    stations = tuple(
        Station(name, *place, **beam)
        for name, (_, *place), beam in zip(names, MASTS, beams, strict=True)
    )
    settings = {"participants": 500, "epsilon": 4.0, "spacing": 100.0} | changes
    return vm.Survey.design(AREA, stations, **settings)


def surveyed(path, names=("north", "south"), *, seed=None, **changes):
    """The folder of a survey of everybody."""
    folder = SurveyFolder(path)
    result = survey(people(names), designed(names, **changes), seed, before_opening=folder.begin)
    folder.save(result.opened, result.radio_map)
    return path


def audit_of(path, **changes):
    """What an audit of a survey might have found, as its file says it."""

    def near(value):
        return {"value": value, "low": 0.9 * value, "high": 1.1 * value}

    def attack(name, knows, metres):
        found = {"10": near(0.01), "50": near(0.2), "100": near(0.4)}
        distances = {"rmse": near(2 * metres), "within_95": near(3 * metres), "found": found}
        return {"attack": name, "knows": knows, "users": 300, "median": near(metres)} | distances

    return {
        "study": "Study: not for publication",
        "survey": SurveyFolder(path).survey.digest,
        "promise": "as promised",
        "epsilon": 4.0,
        "delta": 1e-6,
        "participants": USERS,
        "membership": {
            "knows": "everybody else's contribution", "users": 300,
            "auc": near(0.625), "auc_allowed": 0.981,
            "found_at_5_percent": near(0.125), "found_at_5_percent_allowed": 0.75,
        },
        "canaries": {
            "canaries": 1000, "guesses": 100, "right": 81, "epsilon_at_least": 1.23,
            "confidence": 0.95,
        },
        "location": [
            attack("prior only", "the area", 350.0),
            attack("matched filter", "the sum", 240.0),
            attack("matched filter", "everything else", 120.0),
        ],
        "verdict": {
            "sees": "one sum over all participants", "attack": "matched filter",
            "knows": "everything else", "users": 300, "median": near(120.0), "near": near(0.2),
            "guess_median": near(350.0), "guess_near": near(0.01), "promise": "as promised",
            "epsilon": 4.0, "change": "nothing",
            "told": {"pairs": near(0.625), "allowed": 0.981},
        },
    } | changes  # fmt: skip


def audited(path, content=None, **changes):
    """Lay an audit beside a survey."""
    file = path.with_name(f"{path.name}.study") / "audit" / "audit.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    content = audit_of(path, **changes) if content is None else content
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file
