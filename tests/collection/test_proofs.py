"""Surveys whose contributions are proven: honest ones are added at both, others at neither."""

import json
import os
import secrets
import time
from dataclasses import replace
from unittest import mock

import httpx
import numpy as np
import pytest

import pine_cheats as cheats
from aggregators import (
    METRICS_TOKEN,
    credential,
    deployed,
    halves_of,
    new_keys,
    pair,
    small_survey,
    small_task,
    vector,
)
from refusals import refused
from veilmap.collection import report as reports
from veilmap.collection import shares
from veilmap.collection.collector import Collector
from veilmap.collection.pine import reports as proven
from veilmap.collection.pine import verifying
from veilmap.collection.pine.choosing import errors
from veilmap.collection.report import Refusal
from veilmap.collection.store import NOT_LUCKY, NOT_PROVEN, PAIRED, REPEATED, WAITING
from veilmap.collection.task import ROLES
from veilmap.collection.verification import verify_key, with_messages
from veilmap.errors import ConfigurationError

KEYS = new_keys()


@pytest.fixture
def both(tmp_path):
    found = pair(tmp_path, small_task(KEYS, proofs=True), KEYS, seed=3)
    yield found
    found.close()


def long_vector(task, factor=3):
    """A contribution that is longer than it may be."""
    own = np.zeros(task.survey.numbers, dtype=np.int64)
    own[:2] = factor * task.survey.clip
    return own


def hostile(task, own=None):
    """Halves of a long vector, with the best proofs of it."""
    report = secrets.token_bytes(16)
    own = long_vector(task) if own is None else own
    with cheats.lying(cheats.norm_modulo_q, cheats.claimed):
        return reports.halves(task, own, report, credential(task, report), os.urandom(32))


def take(both, halves):
    for aggregator, half in zip((both.leader, both.helper), halves, strict=True):
        assert aggregator.take([aggregator.parsed(half.content)]) == [None]


def totals(both):
    """The sum so far, of both aggregators' shares."""
    found = []
    for one in (both.leader, both.helper):
        with one.store._engine.connect() as now:
            found.append(shares.from_bytes(now.exec_driver_sql("SELECT total FROM task").scalar()))
    return shares.centred(shares.added(*found))


def test_only_those_that_are_short_enough_are_added(both):
    bad = [hostile(both.task) for _ in range(3)]
    for halves in [bad[0], halves_of(both.task, 1), bad[1], bad[2], halves_of(both.task, 2)]:
        take(both, halves)
    assert both.leader.pair(both.peer) == 5
    for one in (both.leader, both.helper):
        assert (one.standing().added, one.store.unpaired()) == (2, 0)
        assert one.store.rejected() == {"mismatch": 0, "unproven": 3, "unlucky": 0}
    wanted = vector(both.task.survey, 1) + vector(both.task.survey, 2)
    np.testing.assert_array_equal(totals(both), wanted)
    assert both.leader.pair(both.peer, offered_before=1e12) is None  # nothing is offered again
    for role, half in zip((both.leader, both.helper), bad[1], strict=True):
        assert role.take([half])[0].reason == "unproven"


def test_the_sum_is_the_same_as_without_proofs(tmp_path):
    """And is opened with the same noise."""
    opened = []
    for proofs in (True, False):
        task = small_task(KEYS, proofs=proofs)
        folder = tmp_path / str(proofs)
        folder.mkdir()
        own = pair(folder, task, KEYS, seed=3)
        for seed in range(4):
            take(own, halves_of(task, seed))
        own.leader.open(own.peer, early=True)
        noisy = [shares.from_bytes(one.store.opened()) for one in (own.leader, own.helper)]
        opened.append(shares.centred(shares.added(*noisy)))
        own.close()
    np.testing.assert_array_equal(*opened)


def test_over_http_and_counted_by_reason(tmp_path):
    with deployed(tmp_path, keys=KEYS, proofs=True) as served:
        task = served.task
        for halves in (halves_of(task, 1), hostile(task), halves_of(task, 2)):
            for role, half in zip(ROLES, halves, strict=True):
                assert served.send(half, role).status_code == 201
        end = time.monotonic() + 60
        collector = Collector(served.aggregators, KEYS.collector)
        while (standing := collector.standing("leader")).added < 2 or standing.unpaired:
            assert time.monotonic() < end
            time.sleep(0.05)
        for role in ROLES:
            told = collector.standing(role)
            assert (told.added, told.rejected) == (2, {"mismatch": 0, "unproven": 1, "unlucky": 0})
            shown = {"authorization": f"Bearer {METRICS_TOKEN}"}
            metrics = httpx.get(f"{served.address(role)}/metrics", headers=shown).text
            assert 'veilmap_reports_rejected{reason="unproven"} 1.0' in metrics
        statement = json.loads(collector.open(early=True, waiting=lambda added: None)["statement"])
        assert statement["reports"] == 2


@pytest.mark.parametrize("at", [0, 32, 64, 96], ids=["wraparound", "joint", "blind", "other blind"])
@pytest.mark.parametrize("role", [0, 1], ids=ROLES)
def test_a_client_cannot_set_both_at_odds(both, role, at):
    """Neither adds a report whose halves say different things, so that the sum can be opened."""
    task, report = both.task, secrets.token_bytes(16)
    made = [bytearray(one.share) for one in halves_of(task, 5, report)]
    made[role][at] ^= 1
    hashes = b"".join(
        reports.share_hash(name, task.digest_bytes, report, bytes(one))
        for name, one in zip(ROLES, made, strict=True)
    )
    own = credential(task, report)
    take(both, [reports.Half(report, hashes, own, bytes(one)) for one in made])
    for seed in range(2):
        take(both, halves_of(task, seed))
    assert both.leader.pair(both.peer) == 3
    for one in (both.leader, both.helper):
        assert one.standing().added == 2
        assert one.store.rejected()["unproven"] == 1
    assert json.loads(both.leader.open(both.peer, early=True)["statement"])["reports"] == 2


def job(both, number, halves):
    """A job's content, as the leader makes it."""
    request = b"".join(half.id + half.hashes for half in halves)
    key = verify_key(both.task, both.leader.key)
    content = with_messages(both.task, both.leader.store, key, request)
    return number.to_bytes(8) + bytes(8) + content


def test_a_job_that_is_asked_again_has_the_same_answer(both):
    good, bad, missing = halves_of(both.task, 1), hostile(both.task), halves_of(both.task, 2)
    for halves in (good, bad):
        take(both, halves)
    assert both.leader.take([missing[0]]) == [None]
    content = job(both, 1, [good[0], bad[0], missing[0]])
    answer = both.helper.answer(content)
    assert answer == bytes([PAIRED, NOT_PROVEN, WAITING])
    assert both.helper.take([missing[1]]) == [None]
    assert both.helper.answer(content) == answer
    assert both.helper.answer(job(both, 1, [good[0], bad[0], missing[0]])) == answer
    again = both.helper.answer(job(both, 2, [good[0], bad[0], missing[0]]))
    assert again == bytes([REPEATED, NOT_PROVEN, PAIRED])
    assert both.helper.standing().added == 2


def test_the_helper_keeps_to_the_first_key(both):
    """A second message about a report, at another point, would tell the leader more of it."""
    first, second = halves_of(both.task, 1), halves_of(both.task, 2)
    for halves in (first, second):
        take(both, halves)
    both.helper.answer(job(both, 1, [first[0]]))
    content = job(both, 2, [second[0]])
    changed = content[:16] + os.urandom(32) + content[48:]
    with pytest.raises(Refusal) as caught:
        both.helper.answer(changed)
    assert caught.value.reason == "job"
    assert both.helper.answer(content) == bytes([PAIRED])


def test_the_leader_says_the_same_of_a_report_whenever_it_is_asked(tmp_path):
    """Also where its database is a new one, or was put back to before it said anything."""
    task = small_task(KEYS, proofs=True)
    half = halves_of(task, 1)[0]
    own = pair(tmp_path, task, KEYS)
    assert own.leader.take([half]) == [None]
    before = job(own, 1, [half])
    own.close()
    (tmp_path / "again").mkdir()
    again = pair(tmp_path / "again", task, KEYS)
    assert again.leader.take([half]) == [None]
    assert job(again, 1, [half]) == before
    again.close()


def test_every_survey_and_every_leader_has_a_key_of_its_own():
    task, other = (small_task(KEYS, proofs=True, most_reports=count) for count in (100, 101))
    keys = {verify_key(task, KEYS.leader), verify_key(other, KEYS.leader)}
    keys.add(verify_key(task, KEYS.helper))
    assert len(keys) == 3
    assert {len(key) for key in keys} == {32}
    assert verify_key(task, KEYS.leader) in keys


@pytest.mark.parametrize("cut", [
    slice(0, 20), slice(0, 47), slice(0, -1), slice(0, 48 + 80), slice(0, 48 + 79)
])  # fmt: skip
def test_a_job_that_is_none_is_refused(both, cut):
    half = halves_of(both.task, 1)
    take(both, half)
    content = job(both, 1, [half[0]])
    with pytest.raises(Refusal) as caught:
        both.helper.answer(content[cut])
    assert caught.value.reason == "malformed"
    with pytest.raises(Refusal):
        both.helper.answer(content + content[48:])  # the same report twice
    assert both.helper.answer(content) == bytes([PAIRED])


def test_a_report_with_an_unlucky_point_is_refused_at_both_with_its_reason(both):
    """By chance it is one in millions; here the point is one of those that must not be used."""
    halves, usual = halves_of(both.task, 1), verifying.expanded

    def points(key, usage, binder, count):
        found = usual(key, usage, binder, count)
        return np.ones_like(found) if usage.name == "QUERY_RANDOMNESS" else found

    take(both, halves)
    with mock.patch.object(verifying, "expanded", points):
        both.leader.pair(both.peer)
    for one, half in zip((both.leader, both.helper), halves, strict=True):
        assert one.store.rejected() == {"mismatch": 0, "unproven": 0, "unlucky": 1}
        assert one.take([half])[0].reason == "unlucky"
    assert both.helper.answer(job(both, 9, [])) == b""
    assert NOT_LUCKY not in b"pwmru"


@pytest.mark.parametrize("role", ROLES)
def test_every_byte_that_was_changed_is_noticed(role):
    """Before anything is stored: by the hash of the share, as without proofs."""
    task = small_task(KEYS, proofs=True)
    content = dict(zip(ROLES, halves_of(task, 1), strict=True))[role].content
    rng = np.random.default_rng(0)
    start = len(content) - reports.share_bytes(task, role)
    for at in rng.integers(start, len(content), 500):
        other = bytearray(content)
        other[at] ^= 1 << int(rng.integers(8))
        with pytest.raises(Refusal) as caught:
            reports.parsed(bytes(other), task, role)
        assert caught.value.reason == "altered"
    assert reports.parsed(content, task, role).content == content
    with pytest.raises(Refusal) as caught:
        reports.parsed(content[:-1], task, role)
    assert caught.value.reason == "malformed"


def test_what_is_no_element_is_malformed():
    """Also in the proofs, which are not added up."""
    task, report = small_task(KEYS, proofs=True), bytes(16)
    leader, helper = halves_of(task, 1, report)
    share = leader.share[:-4] + b"\xff" * 4
    hashes = reports.share_hash("leader", task.digest_bytes, report, share) + leader.hashes[32:]
    with pytest.raises(Refusal) as caught:
        reports.parsed(replace(leader, share=share, hashes=hashes).content, task, "leader")
    assert caught.value.reason == "malformed"


def test_proofs_must_be_of_the_surveys_contributions_and_good(both):
    survey = both.task.survey
    usual = proven.parameters_of(survey)
    assert both.task.proofs == usual
    assert errors(usual).delta(survey.epsilon) <= 1e-9 * survey.delta
    for other in (
        proven.parameters_of(small_survey(clip=512)), replace(usual, dimension=usual.dimension - 1),
        replace(usual, proofs=2), replace(usual, norm_proofs=1),
        replace(usual, checks=20, successes=20),
        replace(usual, alpha=usual.alpha / 4), "yes",
    ):  # fmt: skip
        with refused(ConfigurationError, "proofs", parameter="proofs"):
            replace(both.task, proofs=other)


def test_a_clip_that_no_proof_reaches_is_refused_when_a_task_is_made():
    with refused(ConfigurationError, "norm", parameter="bound"):
        small_task(KEYS, survey=small_survey(clip=2**17), proofs=True)


def test_tasks_are_read_as_they_were_written(both):
    assert type(both.task).parse(both.task.content, "here") == both.task
