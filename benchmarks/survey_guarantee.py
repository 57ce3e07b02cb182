"""What the strongest attacks find in a survey, beside what its ε allows, and with less noise.

python benchmarks/survey_guarantee.py
python benchmarks/survey_guarantee.py links.parquet --epsilon 1,2,8 --seeds 5

Everybody in the file, or 2,000 people of a synthetic city, is surveyed with the noise that a design
claims and with half of it, which the attackers are not told. `veilmap audit` has the same attacks;
this runs them for several ε and noise seeds. On 5,000 people and 29 base stations it takes three
minutes of one core.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import veilmap as vm
from veilmap.auditing.canaries import canary_bound
from veilmap.auditing.surveys import SurveyAudit, audit_survey
from veilmap.privacy.accounting import gaussian_epsilon
from veilmap.surveys.aggregate import opened, summed
from veilmap.surveys.contribution import usable
from veilmap.surveys.design import stations_of
from veilmap.surveys.posterior import radio_map_of

CITY, USERS, LINKS = 1, 2000, 25
SHARES = (1.0, 0.5)
# Columns: measured, then what the noise and what ε allows.
PROMISE = (
    *("ε", "noise", "ε ≥ (least…most)", "any ≥"),
    *("AUC", "by noise", "by ε", "found", "by noise", "by ε"),
)
PLACES = (
    *("ε", "noise", "guess", "sum only", "knowing all others: mean place", "likeliest place"),
    *("≤50 m: sum only", "likeliest place"),
)


def crowd(path: Path | None) -> tuple[vm.Measurements, tuple[float, float, float, float]]:
    """Measurements, and the area that a design covers."""
    if path is None:
        scene = vm.Scene.synthetic(CITY)
        west, east, south, north = scene.grid.extent
        return scene.measure(USERS, LINKS, seed=2 * CITY), (west, south, east, north)
    data = vm.Measurements.load(path)
    low, high = data.user_xyz[:, :2].min(axis=0), data.user_xyz[:, :2].max(axis=0)
    return data, (*low.tolist(), *high.tolist())


def designed(data: vm.Measurements, area: tuple[float, ...], epsilon: float) -> vm.Survey:
    """A survey of just these participants; its area and base stations count as public."""
    return vm.Survey.design(
        area,
        stations_of(*data.stations, data.antennas),
        participants=len(data.users),
        epsilon=epsilon,
        crs=data.crs,
    )


def audited(
    data: vm.Measurements, claimed: vm.Survey, share: float, users: int, seed: int
) -> SurveyAudit:
    """The audit of one survey with a share of the claimed noise, which everybody takes for all."""
    spent = gaussian_epsilon(share * claimed.deviation, claimed.delta, claimed.clip)
    actual = claimed if share == 1 else replace(claimed, epsilon=spent)
    xy = data.user_xyz[:, :2]
    kept = usable(claimed, xy, data.bs, data.gain_db).all(axis=0)
    owner = np.searchsorted(data.users, data.user[kept])
    total = summed(claimed, owner, xy[kept], data.bs[kept], data.gain_db[kept])
    noisy = opened(actual, total, len(data.users), seed)
    found = replace(noisy, survey=claimed, deviation=claimed.deviation)
    audit = audit_survey(found, radio_map_of(found), data, users=users, seed=seed)
    return audit if share == 1 else replace(audit, canaries=canary_bound(actual, seed))


def promise_row(audits: Sequence[SurveyAudit], share: float) -> list[str]:
    """Means over noise seeds of what is told of who took part."""
    told = [one.membership for one in audits]
    least = [one.canaries.epsilon_at_least for one in audits]
    first = told[0]
    return [
        f"{audits[0].design_epsilon:g}",
        f"× {share:g}",
        f"{np.mean(least):.2f} ({min(least):.2f}…{max(least):.2f})",
        f"{np.mean([one.canaries.epsilon_at_least_of_any for one in audits]):.2f}",
        f"{np.mean([one.auc.value for one in told]):.3f}",
        f"{first.auc_of_noise:.3f}",
        f"{first.auc_allowed:.3f}",
        f"{np.mean([one.found_at_5_percent.value for one in told]):.1%}",
        f"{first.found_at_5_percent_of_noise:.1%}",
        f"{first.found_at_5_percent_allowed:.1%}",
    ]


def places_row(audits: Sequence[SurveyAudit], share: float) -> list[str]:
    """Means over noise seeds of median errors, in metres, and of shares found within 50 m."""
    errors = np.mean([[one.median.value for one in audit.location] for audit in audits], axis=0)
    found = np.mean([[one.found[50].value for one in audit.location] for audit in audits], axis=0)
    return [
        f"{audits[0].design_epsilon:g}",
        f"× {share:g}",
        *(f"{metres:.0f}" for metres in errors),
        f"{found[1]:.1%}",
        f"{found[3]:.1%}",
    ]


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"\n{title}")
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        print("  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", nargs="?", type=Path, help="measurements; default: a city")
    parser.add_argument("--epsilon", default="1,2,8", help="values of ε")
    parser.add_argument("--seeds", type=int, default=5, help="how many noise seeds")
    parser.add_argument("--users", type=int, default=400, help="how many are attacked")
    given = parser.parse_args()
    data, area = crowd(given.data)
    promises, places = [], []
    for epsilon in map(float, given.epsilon.split(",")):
        claimed = designed(data, area, epsilon)
        for share in SHARES:
            audits = [
                audited(data, claimed, share, given.users, seed) for seed in range(given.seeds)
            ]
            promises.append(promise_row(audits, share))
            places.append(places_row(audits, share))
    rows, columns = claimed.grid.shape
    print(
        f"{len(data.users):,} participants, {len(claimed.stations)} base stations; means over"
        f" {given.seeds} noise seeds, {given.users} participants attacked; at the last ε"
        f" {rows} × {columns} points"
    )
    show("Who took part: ε from canaries, AUC, found at 5 % false alarms", PROMISE, promises)
    show("Where: median error in metres, found within 50 m", PLACES, places)


if __name__ == "__main__":
    main()
