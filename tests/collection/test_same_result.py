"""Two aggregators find what one machine finds, open it once, and find each other out."""

import json
import math
import shutil
import sqlite3
from dataclasses import replace

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veilmap as vm
from aggregators import deployed, halves_of, new_keys, pair, small_survey, small_task
from commands import run
from refusals import refused
from veilmap.collection import shares
from veilmap.collection.aggregator import receipt_text, statement_of
from veilmap.collection.client import Aggregators, Refused
from veilmap.collection.collector import Collector, open_into
from veilmap.collection.report import HASH_BYTES, ID_BYTES, Refusal
from veilmap.collection.store import PAIRED, WAITING
from veilmap.errors import ConfigurationError, DataError, PrivacyError
from veilmap.geometry.grid import Grid
from veilmap.privacy.accounting import gaussian_epsilon
from veilmap.surveys.aggregate import add_noise, noised, opened
from veilmap.surveys.contribution import contribution
from veilmap.surveys.folder import SurveyFolder
from veilmap.surveys.posterior import radio_map_of
from veilmap.surveys.surveying import survey as on_one_machine

ROLES = ("leader", "helper")
ENTRY = ID_BYTES + 2 * HASH_BYTES


def people(design, count, seed):
    """Readings of so many people; some are outside the area, some of unknown stations."""
    rng = np.random.default_rng(seed)
    known = {one.id: (one.x, one.y, one.z) for one in design.stations}
    known["elsewhere"] = (0.0, 0.0, 10.0)
    owner = np.concatenate([np.arange(count), rng.integers(0, count, 3 * count)])
    names = rng.choice(list(known), len(owner))
    west, east, south, north = design.grid.extent
    margin = 0.1 * (east - west)
    xy = rng.uniform((west - margin, south), (east + margin, north), (len(owner), 2))
    return vm.Measurements(
        owner,
        np.column_stack([xy, np.full(len(owner), 1.5)]),
        np.array([known[name] for name in names]),
        rng.normal(-90, 15, len(owner)),
        names,
    )


def vectors(design, data):
    """What every one of them contributes, each computed alone."""
    own = (data.select(data.user == user) for user in data.users)
    return [contribution(design, one.user_xyz[:, :2], one.bs, one.gain_db).vector for one in own]


def give(both, contributions):
    """Hand reports to both aggregators of one process; their ids."""
    made = [halves_of(both.task, 0, own=own) for own in contributions]
    assert not any(both.leader.take([first for first, _ in made]))
    # The helper gets them in another order, as it may be.
    assert not any(both.helper.take([second for _, second in reversed(made)]))
    return [first.id for first, _ in made]


def shares_of(both):
    """What both have opened; None where nothing was."""
    return [one.store.opened() for one in (both.leader, both.helper)]


def total_of(both):
    """The sum that both noisy shares give together."""
    return shares.centred(shares.added(*map(shares.from_bytes, shares_of(both))))


def kept_beside(both, folder):
    """Aggregators that keep their noisy shares in files, as those that are served do."""
    both.leader.opening, both.helper.opening = folder / "leader.json", folder / "helper.json"
    return both


def same_map(found, other):
    """Whether two maps say the same to the last bit."""
    assert found.propagation == other.propagation
    np.testing.assert_array_equal(found.field.values, other.field.values)
    np.testing.assert_array_equal(found.field.deviations, other.field.deviations)
    assert found.field.ids == other.field.ids
    np.testing.assert_array_equal(found.heights, other.heights)
    return True


designs = st.builds(
    lambda rows, columns, size, stations, epsilon, clip: vm.Survey(
        "somewhere",
        Grid(size, (rows, columns), (500.0, -300.0)),
        tuple(vm.Station(f"s{k}", 500 + 70.0 * k, 90.0 * k, 20.0) for k in range(stations)),
        participants=2,
        epsilon=epsilon,
        delta=1e-4,
        clip=clip,
        aggregators=2,
    ),
    rows=st.integers(4, 7),
    columns=st.integers(4, 7),
    size=st.sampled_from([30.0, 75.5]),
    stations=st.integers(1, 4),
    epsilon=st.sampled_from([0.5, 4.0, 60.0]),
    clip=st.sampled_from([64, 1024]),
)


@settings(max_examples=8)
@given(designs, st.integers(2, 12), st.integers(0, 2**31))
def test_the_sum_and_the_map_are_those_of_one_machine(tmp_path_factory, design, count, seed):
    data = people(design, count, seed)
    own = vectors(design, data)
    both = pair(
        tmp_path_factory.mktemp("pair"), small_task(keys := new_keys(), survey=design), keys,
        seed=seed,
    )  # fmt: skip
    give(both, own)
    both.leader.open(both.peer, early=True)
    total = total_of(both)
    both.close()
    there = on_one_machine(data, design, seed)
    np.testing.assert_array_equal(total, there.opened.total)
    exact = sum(own)
    np.testing.assert_array_equal(total, opened(design, exact, count, seed).total)
    noises = np.zeros(design.numbers, dtype=np.int64)
    for number in (0, 1):
        add_noise(design, noises, seed, number)
    np.testing.assert_array_equal(total - noises, exact)
    assert same_map(radio_map_of(noised(design, total, count)), there.radio_map)


def test_over_http_the_folder_holds_what_one_machine_finds(tmp_path):
    design = small_survey(participants=5)
    data = people(design, 6, seed=4)
    with deployed(tmp_path, seed=11, survey=design) as both:
        for own in vectors(design, data):
            for half, role in zip(halves_of(both.task, 0, own=own), ROLES, strict=True):
                both.aggregators.send(half, role)
        folder = SurveyFolder(tmp_path / "town")
        found = open_into(folder, Collector(both.aggregators, both.keys.collector), early=True)
    there = on_one_machine(data, design, 11)
    np.testing.assert_array_equal(folder.opened().total, there.opened.total)
    assert folder.opened().deviation == there.opened.deviation
    assert folder.account["participants"] == 6
    assert same_map(found, there.radio_map)
    assert same_map(vm.RadioMap.load(folder.map_file), there.radio_map)


# ---- once


def test_a_second_opening_in_the_same_process_is_the_first(tmp_path):
    both = pair(tmp_path)
    give(both, vectors(both.task.survey, people(both.task.survey, 3, 0)))
    first = both.leader.open(both.peer, early=True)
    before = shares_of(both)
    assert both.leader.open(both.peer, early=True) == first
    statement = first["statement"].encode()
    signature = both.keys.leader.sign("opening", statement)
    assert both.helper.open(statement, signature) == first["helper"]
    assert shares_of(both) == before
    both.close()
    # Nor does a new process draw noise again.
    again = pair(tmp_path, both.task, both.keys)
    assert again.leader.open(again.peer, early=True) == first
    assert shares_of(again) == before
    again.close()


def test_another_sum_is_refused_by_both_after_an_opening(tmp_path):
    both = pair(tmp_path)
    give(both, vectors(both.task.survey, people(both.task.survey, 3, 0)))
    told = json.loads(both.leader.open(both.peer, early=True)["statement"])
    before = shares_of(both)
    for change in ({"reports": 2}, {"list": "0" * 64}, {"leader_unpaired": 1}):
        other = json.dumps(told | change, sort_keys=True, separators=(",", ":")).encode()
        signature = both.keys.leader.sign("opening", other)
        with pytest.raises(Refusal):
            both.helper.open(other, signature)
        with pytest.raises(Refusal) as caught:
            both.leader.store.open(other, signature, lambda total: total)
        assert caught.value.reason == "opened"
    assert shares_of(both) == before
    both.close()


def copy_of(database, to):
    """A whole copy of a database that is in use."""
    with sqlite3.connect(database) as there, sqlite3.connect(to) as here:
        there.backup(here)
    there.close()
    here.close()


@pytest.mark.parametrize("moment", ["taken", "added", "closed", "agreed"])
@pytest.mark.parametrize("role", ["leader", "helper"])
def test_a_database_put_back_gets_the_same_noise_or_none(tmp_path, role, moment):
    both = kept_beside(pair(tmp_path), tmp_path)
    give(both, vectors(both.task.survey, people(both.task.survey, 4, 1)))
    steps = {
        "taken": lambda: None,
        "added": lambda: both.leader.pair(both.peer),
        "closed": lambda: [one.store.stop_collecting() for one in (both.leader, both.helper)],
        "agreed": lambda: [
            one.store.agree(statement_of(both.task, one.store, 0, 0))
            for one in (both.leader, both.helper)
        ],
    }
    for name, step in steps.items():
        step()
        if name == moment:
            break
    copy_of(tmp_path / f"{role}.db", tmp_path / "copy.db")
    first = both.leader.open(both.peer, early=True)
    before = shares_of(both)
    both.close()
    for left in tmp_path.glob(f"{role}.db*"):
        left.unlink()
    shutil.copy(tmp_path / "copy.db", tmp_path / f"{role}.db")
    again = kept_beside(pair(tmp_path, both.task, both.keys), tmp_path)
    assert shares_of(again)[role == "helper"] is None
    asked = first["statement"].encode()
    tries = (
        lambda: again.leader.open(again.peer, early=True),
        lambda: again.helper.open(asked, again.keys.leader.sign("opening", asked)),
    )
    for each in tries:
        try:
            each()
        except Refusal:
            continue
    found = shares_of(again)
    assert all(share in (None, known) for share, known in zip(found, before, strict=True))
    if moment != "taken":  # what was added is there, so it goes on to the very same sum
        assert found[role == "leader"] == before[role == "leader"]
        assert found == before or (role, moment) == ("helper", "added")
    again.close()


def test_both_databases_put_back_do_not_open_another_list(tmp_path):
    both = kept_beside(pair(tmp_path), tmp_path)
    own = vectors(both.task.survey, people(both.task.survey, 4, 1))
    give(both, own)
    for role in ("leader", "helper"):
        copy_of(tmp_path / f"{role}.db", tmp_path / f"{role}.copy")
    both.leader.open(both.peer, early=True)
    both.close()
    for role in ("leader", "helper"):
        for left in tmp_path.glob(f"{role}.db*"):
            left.unlink()
        shutil.copy(tmp_path / f"{role}.copy", tmp_path / f"{role}.db")
    again = kept_beside(pair(tmp_path, both.task, both.keys), tmp_path)
    give(again, own[:1])  # one report more than was opened
    with pytest.raises(Refusal) as caught:
        again.leader.open(again.peer, early=True)
    assert caught.value.reason == "opened"
    assert shares_of(again) == [None, None]
    again.close()


@pytest.mark.parametrize("role", ["leader", "helper"])
def test_an_aggregator_that_dies_after_drawing_noise_draws_no_other(tmp_path, role):
    both = kept_beside(pair(tmp_path), tmp_path)
    give(both, vectors(both.task.survey, people(both.task.survey, 3, 2)))
    own, drawn = getattr(both, role), []
    honest = own.noised

    def dies(statement, total):
        drawn.append(shares.to_bytes(honest(statement, total)))
        raise KeyboardInterrupt

    own.noised = dies
    with pytest.raises(KeyboardInterrupt):
        both.leader.open(both.peer, early=True)
    both.close()
    again = kept_beside(pair(tmp_path, both.task, both.keys), tmp_path)
    again.leader.open(again.peer)
    assert shares_of(again)[role == "helper"] == drawn[0]
    assert ((tmp_path / f"{role}.json").stat().st_mode & 0o777) == 0o600
    again.close()


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"statement": 1, "share": ""}'])
def test_a_damaged_file_of_the_opening_is_no_leave_for_new_noise(tmp_path, content):
    both = kept_beside(pair(tmp_path), tmp_path)
    give(both, vectors(both.task.survey, people(both.task.survey, 3, 2)))
    (tmp_path / "helper.json").write_text(content)
    with refused(DataError, tmp_path / "helper.json"):
        both.leader.open(both.peer, early=True)
    assert shares_of(both) == [None, None]
    both.close()


# ---- enough reports


def test_too_few_reports_are_not_opened_and_more_are_still_taken(tmp_path):
    task = small_task(keys := new_keys(), survey=small_survey(participants=4))
    both = pair(tmp_path, task, keys)
    own = vectors(task.survey, people(task.survey, 4, 3))
    give(both, own[:3])
    with pytest.raises(Refusal) as caught:
        both.leader.open(both.peer, early=True)
    assert caught.value.reason == "too few"
    assert both.leader.standing().state == both.helper.standing().state == "collecting"
    give(both, own[3:])
    both.leader.open(both.peer, early=True)
    assert both.leader.standing().added == 4
    both.close()


def test_reports_without_their_other_half_do_not_make_enough(tmp_path):
    task = small_task(keys := new_keys(), survey=small_survey(participants=4))
    both = pair(tmp_path, task, keys)
    own = vectors(task.survey, people(task.survey, 4, 3))
    give(both, own[:3])
    assert both.leader.take([halves_of(task, 0, own=own[3])[0]]) == [None]
    with pytest.raises(Refusal) as caught:
        both.leader.open(both.peer, early=True)
    assert caught.value.reason == "too few"
    assert shares_of(both) == [None, None]
    # A leader that asks all the same is refused by the helper.
    statement = statement_of(task, both.helper.store, 1, 0)
    with pytest.raises(Refusal) as caught:
        both.helper.open(statement, keys.leader.sign("opening", statement))
    assert caught.value.reason == "too few"
    assert shares_of(both) == [None, None]
    both.close()


def test_before_its_time_is_over_a_survey_is_opened_only_if_that_is_asked_for(tmp_path):
    both = pair(tmp_path)
    give(both, vectors(both.task.survey, people(both.task.survey, 3, 0)))
    with pytest.raises(Refusal) as caught:
        both.leader.open(both.peer)
    assert caught.value.reason == "collecting"
    assert shares_of(both) == [None, None]
    both.leader.clock = both.helper.clock = both.task.closes_at.timestamp
    both.leader.open(both.peer)
    assert None not in shares_of(both)
    both.close()


# ---- the collector


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Both aggregators on loopback, with four reports; noise is the operating system's."""
    design = small_survey(participants=3)
    with deployed(tmp_path_factory.mktemp("served"), survey=design) as both:
        for own in vectors(design, people(design, 4, 5)):
            for half, role in zip(halves_of(both.task, 0, own=own), ROLES, strict=True):
                both.aggregators.send(half, role)
        yield both


@pytest.mark.parametrize(
    "where",
    [
        "veilmap.collection.collector.Collector.open",
        "veilmap.surveys.folder.SurveyFolder.begin",
        "veilmap.surveys.folder.files.write_json",
        "veilmap.collection.collector.Collector.joined",
        "veilmap.collection.collector.radio_map_of",
        "veilmap.surveys.folder.SurveyFolder.save",
        "veilmap.model.radio_map.RadioMap.save",
    ],
)
def test_an_opening_that_was_interrupted_goes_on_to_the_same_bits(
    served, tmp_path, monkeypatch, where
):
    def stops(*_, **__):
        raise KeyboardInterrupt

    folder, collector = SurveyFolder(tmp_path / "town"), Collector(
        served.aggregators, served.keys.collector
    )  # fmt: skip
    monkeypatch.setattr(where, stops)
    with pytest.raises(KeyboardInterrupt):
        open_into(folder, collector, early=True)
    monkeypatch.undo()
    folder = SurveyFolder(tmp_path / "town")
    found = open_into(folder, collector, early=True)
    np.testing.assert_array_equal(folder.opened().total, total_of(served))
    assert same_map(found, vm.RadioMap.load(folder.map_file))
    # And whoever opens it elsewhere, or once more, gets nothing new.
    for name in ("town", "other"):
        other = SurveyFolder(tmp_path / name)
        assert same_map(open_into(other, collector), found)
        np.testing.assert_array_equal(other.opened().total, folder.opened().total)


def test_the_account_is_written_before_the_shares_are_joined(served, tmp_path, monkeypatch):
    folder, seen = SurveyFolder(tmp_path / "town"), []
    joined = Collector.joined

    def looking(self, opening):
        seen.append(json.loads((folder.path / "ledger.json").read_text())["opening"] == opening)
        assert not (folder.path / "sum.npz").exists()
        return joined(self, opening)

    monkeypatch.setattr(Collector, "joined", looking)
    open_into(folder, Collector(served.aggregators, served.keys.collector), early=True)
    assert seen == [True]
    assert not folder.account["seeded"]


def test_a_folder_of_another_opening_is_refused(served, tmp_path):
    folder = SurveyFolder(tmp_path)
    folder.begin(served.task.survey, 4, None)
    with refused(PrivacyError, tmp_path):
        open_into(folder, Collector(served.aggregators, served.keys.collector), early=True)
    assert not (tmp_path / "sum.npz").exists()


def test_only_the_key_of_the_task_opens(served):
    for other in (new_keys().collector, served.keys.leader, served.keys.helper):
        with refused(PrivacyError):
            Collector(served.aggregators, other)
        collector = Collector(served.aggregators, served.keys.collector)
        collector.key = other  # and aggregators do not answer to it
        with refused(Refused, "leader"):
            collector.open(early=True, waiting=lambda added: None)
        with refused(Refused, "leader"):
            collector.joined({"statement": '{"reports":4}'})


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """An opened survey whose aggregators answer whatever a test has them answer."""
    both = pair(tmp_path_factory.mktemp("answered"))
    give(both, vectors(both.task.survey, people(both.task.survey, 3, 6)))
    certificate = both.leader.open(both.peer, early=True)
    parts = dict(zip(("leader", "helper"), shares_of(both), strict=True))
    both.close()

    def collector(opening=certificate, **changed):
        def answer(request):
            if request.url.path.endswith("/opening"):
                known = opening if isinstance(opening, str) else json.dumps(opening)
                return httpx.Response(200, content=known)
            role = "leader" if request.url.port == 8001 else "helper"
            return httpx.Response(200, content=(parts | changed)[role])

        client = httpx.Client(transport=httpx.MockTransport(answer))
        return Collector(Aggregators(client, both.task), both.keys.collector)

    return both, certificate, parts, collector


def test_an_honest_answer_is_joined(answered, tmp_path):
    _, _, parts, collector = answered
    open_into(folder := SurveyFolder(tmp_path), collector())
    total = shares.centred(shares.added(*map(shares.from_bytes, parts.values())))
    np.testing.assert_array_equal(folder.opened().total, total)


def signed_anew(both, certificate, **changes):
    """An opening that says something else, signed by both."""
    told = json.loads(certificate["statement"]) | changes
    statement = json.dumps(told, sort_keys=True, separators=(",", ":"))
    keys = {"leader": both.keys.leader, "helper": both.keys.helper}
    signatures = {role: key.sign("opening", statement.encode()) for role, key in keys.items()}
    return {"statement": statement} | signatures


@pytest.mark.parametrize(
    "wrong",
    [
        lambda both, good: good | {"leader": good["helper"]},
        lambda both, good: good | {"helper": good["leader"]},
        lambda both, good: good | {"leader": good["helper"], "helper": good["leader"]},
        lambda both, good: good | {"helper": ""},
        lambda both, good: good | {"helper": "0" * 128},
        lambda both, good: good | {"statement": good["statement"].replace(":3", ":4")},
        lambda both, good: signed_anew(both, good, task="0" * 64),
        lambda both, good: signed_anew(both, good, task=small_task(new_keys()).digest),
        lambda both, good: signed_anew(both, good, reports=0),
        lambda both, good: (
            good | {"helper": both.keys.helper.sign("receipt", good["statement"].encode())}
        ),
    ],
)
def test_openings_that_both_did_not_sign_for_this_task_are_refused(answered, tmp_path, wrong):
    both, certificate, _, collector = answered
    with refused(PrivacyError):
        open_into(SurveyFolder(tmp_path / "town"), collector(wrong(both, certificate)))
    assert not (tmp_path / "town").exists()


INFINITE = '{"task": "%s", "reports": 1e999}'


@pytest.mark.parametrize(
    "wrong",
    [
        "", "no JSON", "[]", "{}", "null", "3", '"opening"', "[" * 100_000, "1" * 10_000,
        {"statement": "{}"},
        {"statement": "no JSON", "leader": "", "helper": ""},
        {"statement": "[]", "leader": "", "helper": ""},
        {"statement": "[" * 100_000, "leader": "", "helper": ""},
        {"statement": INFINITE, "leader": "", "helper": ""},
    ],
    ids=lambda wrong: str(wrong)[:30],
)  # fmt: skip
def test_what_is_no_opening_is_refused_in_one_line(answered, tmp_path, wrong):
    both, *_, collector = answered
    content = wrong if isinstance(wrong, str) else json.dumps(wrong)
    with refused(DataError, "leader"):
        open_into(
            SurveyFolder(tmp_path / "town"), collector(content.replace("%s", both.task.digest))
        )
    assert not (tmp_path / "town").exists()


@pytest.mark.parametrize("role", ["leader", "helper"])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda share: b"",
        lambda share: share[:-4],
        lambda share: share[:-1],
        lambda share: share + bytes(4),
        lambda share: shares.PRIME.to_bytes(4, "little") + share[4:],
        lambda share: share[:-4] + b"\xff" * 4,
    ],
)
def test_shares_that_are_none_are_not_joined(answered, tmp_path, role, wrong):
    _, _, parts, collector = answered
    with refused(DataError, role):
        open_into(SurveyFolder(tmp_path), collector(**{role: wrong(parts[role])}))
    assert not (tmp_path / "sum.npz").exists()


# ---- one of the two is not honest


@pytest.fixture
def crowd(tmp_path):
    """Four reports at both aggregators, which two are enough to open; and their ids."""
    both = pair(tmp_path)
    ids = give(both, vectors(both.task.survey, people(both.task.survey, 4, 7)))
    yield both, ids
    both.close()


def disagrees(both):
    """Whether the opening comes to a disagreement, before anybody adds noise."""
    with pytest.raises(Refusal) as caught:
        both.leader.open(both.peer, early=True)
    assert shares_of(both) == [None, None]
    return caught.value.reason == "disagreement"


def test_a_leader_that_leaves_out_a_report_is_found_out(crowd):
    both, ids = crowd
    honest = both.leader.store.finish_job

    def leaves_out(number, added, refused):
        honest(number, [one for one in added if one != ids[1]], refused)

    both.leader.store.finish_job = leaves_out
    assert disagrees(both)


def test_a_leader_that_slips_in_a_report_is_found_out(crowd):
    both, _ = crowd
    extra = halves_of(both.task, 8)[0]
    assert both.leader.take([extra]) == [None]
    honest = both.leader.store.finish_job

    def slips_in(number, added, refused):
        honest(number, [*added, extra.id] if added else added, refused)

    both.leader.store.finish_job = slips_in
    assert disagrees(both)


def test_a_helper_that_adds_a_report_and_denies_it_is_found_out(crowd):
    both, _ = crowd
    honest = both.helper.answer
    both.helper.answer = lambda content: honest(content).replace(
        bytes([PAIRED]), bytes([WAITING]), 1
    )
    assert disagrees(both)


def without(content, report):
    """A job without a report, and the place where it was; None if it was not in there."""
    entries = [content[at : at + ENTRY] for at in range(16, len(content), ENTRY)]
    ids = [one[:ID_BYTES] for one in entries]
    if report not in ids:
        return content, None
    place = ids.index(report)
    return content[:16] + b"".join(entries[:place] + entries[place + 1 :]), place


def leave_out(helper, report):
    """Have a helper say that it has added a report that it has not."""
    honest = helper.answer

    def leaves_out(content):
        rest, place = without(content, report)
        answer = honest(rest)
        return answer if place is None else answer[:place] + bytes([PAIRED]) + answer[place:]

    helper.answer = leaves_out


def test_a_helper_that_leaves_out_a_report_is_found_out(crowd):
    both, ids = crowd
    leave_out(both.helper, ids[2])
    assert disagrees(both)


@pytest.mark.parametrize("wrong", [b"", b"p", b"pppx", b"ppppp"])
def test_a_helper_that_answers_nonsense_is_refused(crowd, wrong):
    both, _ = crowd
    both.helper.answer = lambda content: wrong
    with pytest.raises(Refusal):
        both.leader.open(both.peer, early=True)
    assert both.leader.standing().added == 0
    assert shares_of(both) == [None, None]


def test_a_helper_that_does_not_sign_keeps_the_leader_from_adding_noise(crowd):
    both, _ = crowd
    both.helper.open = lambda statement, signature: both.keys.collector.sign("opening", statement)
    with pytest.raises(Refusal) as caught:
        both.leader.open(both.peer, early=True)
    assert caught.value.reason == "not signed"
    assert both.leader.store.opened() is None


def test_an_opening_that_the_leader_did_not_sign_is_refused_by_the_helper(crowd):
    both, _ = crowd
    while both.leader.pair(both.peer):
        pass
    both.helper.store.stop_collecting()
    statement = statement_of(both.task, both.helper.store, 0, 0)
    for signature in ("", both.keys.collector.sign("opening", statement)):
        with pytest.raises(Refusal) as caught:
            both.helper.open(statement, signature)
        assert caught.value.reason == "not signed"
    for nonsense in (b"", b"[]", b"{}", b"[" * 100_000):
        with pytest.raises(Refusal) as caught:
            both.helper.open(nonsense, both.keys.leader.sign("opening", nonsense))
        assert caught.value.reason == "malformed"
    assert both.helper.store.opened() is None


@pytest.mark.parametrize(
    ("left_out_by", "named", "not_named"),
    [("nobody", None, None), ("helper", "helper", "leader"), ("leader", "leader", None)],
)
def test_a_participant_finds_out_that_a_report_was_left_out(
    tmp_path, capsys, left_out_by, named, not_named
):
    with deployed(tmp_path) as both:
        own = vectors(both.task.survey, people(both.task.survey, 4, 9))
        made = [halves_of(both.task, 0, own=one) for one in own]
        mine = made[0]
        if left_out_by == "helper":  # and it signs what the leader says all the same
            leave_out(both.helper, mine[0].id)
            both.helper.open = lambda statement, signature: signed_and_opened(both, statement)
        receipts = {}
        for halves in made:
            for half, role in zip(halves, ("leader", "helper"), strict=True):
                if left_out_by == "leader" and half is mine[0]:
                    # It confirms a half that it throws away.
                    text = receipt_text(both.task, "leader", half.id, half.hashes)
                    receipts[role] = both.keys.leader.sign("receipt", text)
                else:
                    receipts[role] = both.aggregators.send(half, role)
        receipt = tmp_path / "receipt.json"
        content = {"task": both.task.digest, "id": mine[0].id.hex(), "receipts": receipts}
        receipt.write_text(json.dumps(content))
        Collector(both.aggregators, both.keys.collector).open(early=True, waiting=lambda _: None)
        words = ("contribute", both.address("leader"), "--receipt", str(receipt), "--check")
        code, out, error = run(capsys, *words)
    if named is None:
        assert (code, error) == (0, "")
        assert "leader" in out
        assert "helper" in out
    else:
        assert code == 2
        assert error.count("\n") == 1
        said = error.split(str(receipt))[1]
        assert f"says the {named}" in said
        assert not_named is None or f"says the {not_named}" not in said


def signed_and_opened(both, statement):
    """What a helper answers that opens whatever sum it has, and says nothing."""
    both.helper.store.open(statement, "", lambda total: both.helper.noised(statement, total))
    return both.keys.helper.sign("opening", statement)


# ---- the promise


def test_the_promise_counts_the_noise_of_one_aggregator_alone(tmp_path):
    """Whoever runs the other one knows what it has drawn."""
    design = small_survey(participants=3, epsilon=1.5, delta=1e-5)
    folder = SurveyFolder(tmp_path / "town")
    with deployed(tmp_path, survey=design) as both:
        for own in vectors(design, people(design, 3, 5)):
            for half, role in zip(halves_of(both.task, 0, own=own), ROLES, strict=True):
                both.aggregators.send(half, role)
        open_into(folder, Collector(both.aggregators, both.keys.collector), early=True)
    alone = gaussian_epsilon(design.deviation, design.delta, design.clip)
    assert alone == pytest.approx(1.5, rel=1e-3)
    assert alone <= 1.5
    assert folder.account["epsilon"] == pytest.approx(alone)
    assert folder.promise.epsilon == folder.account["epsilon"]
    assert folder.opened().promise.epsilon == pytest.approx(alone)
    assert folder.opened().deviation == pytest.approx(math.sqrt(2) * design.deviation)
    one = replace(design, aggregators=1)
    assert one.deviation == design.deviation
    assert design.noise == pytest.approx(math.sqrt(2) * one.noise)


@pytest.mark.parametrize("seed", [None, 3])
def test_each_adds_the_whole_noise_and_both_add_their_own(tmp_path, seed):
    grid = Grid(20.0, (30, 40), (1000.0, 2000.0))
    design = replace(small_survey(epsilon=2.0), grid=grid)
    both = pair(tmp_path, small_task(keys := new_keys(), survey=design), keys, seed=seed)
    own = vectors(design, people(design, 2, 0))
    give(both, own)
    sums, noises = {}, {}
    for role in ("leader", "helper"):
        aggregator = getattr(both, role)

        def noted(statement, total, role=role, honest=aggregator.noised):
            sums[role] = total
            noises[role] = shares.centred(shares.residues(
                honest(statement, total).astype(np.int64) - total.astype(np.int64)
            ))  # fmt: skip
            return shares.added(total, shares.residues(noises[role]))

        aggregator.noised = noted
    both.leader.open(both.peer, early=True)
    # The relative error of a deviation from n numbers is 1/√(2n).
    near = 5 / math.sqrt(2 * design.numbers)
    for noise in noises.values():
        assert noise.std() == pytest.approx(design.deviation, rel=near)
    correlation = np.corrcoef(noises["leader"], noises["helper"])[0, 1]
    assert abs(correlation) < 5 / math.sqrt(design.numbers)
    found = total_of(both) - sum(own)
    assert found.std() == pytest.approx(math.sqrt(2) * design.deviation, rel=near)
    np.testing.assert_array_equal(found, noises["leader"] + noises["helper"])
    # Without noise neither has anything but numbers spread over the whole field.
    for total in sums.values():
        spread = total.astype(float) / shares.PRIME
        assert abs(spread.mean() - 0.5) < 5 / math.sqrt(12 * len(total))
        assert spread.std() == pytest.approx(1 / math.sqrt(12), rel=0.1)
    both.close()


def test_two_surveys_of_the_same_people_are_counted_together(served, tmp_path):
    first, second = SurveyFolder(tmp_path / "first"), SurveyFolder(tmp_path / "second")
    collector = Collector(served.aggregators, served.keys.collector)
    first.begin(served.task.survey, 4, None)
    open_into(second, collector, early=True, after=(first,))
    assert second.account["epsilon"] > first.account["epsilon"] * 1.01
    assert len(second.account["earlier"]) == 1


def test_a_task_for_one_machine_is_refused():
    with refused(ConfigurationError, parameter="survey"):
        small_task(new_keys(), survey=small_survey(aggregators=1))
