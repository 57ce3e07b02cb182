"""A node's own account: what it answered, and what that cost its user."""

import json
import multiprocessing
import os
import time
from dataclasses import asdict

import pytest

pytest.importorskip("flwr", reason="the Flower engine is an optional extra")

import veilmap as vm
from fakegrid import enrol, enrolment_in
from veilmap.flower import app
from veilmap.flower.secagg import account
from veilmap.flower.secagg.account import STAGES
from veilmap.privacy.accounting import calibrated

FORMAL = calibrated(vm.AggregateGaussian(epsilon=8, delta=1e-3, dropout=0.4), 3)
COLLECT = STAGES[2]


@pytest.fixture
def own(tmp_path):
    enrol(tmp_path, ["a", "b"])
    return enrolment_in(tmp_path, "a")


def answer(own, session, mechanism=FORMAL):
    """The stages of a session up to the answer that is paid for."""
    for stage in STAGES[:3]:
        account.enter(own.account, own.owner, session, stage, mechanism)


def answers(own):
    return account.load(own.account, own.owner).answers


def test_a_node_stops_by_itself_when_its_promise_is_spent(own):
    for session in (1, 2, 3):
        answer(own, session)
    with pytest.raises(vm.VeilmapError):
        answer(own, 4)
    assert answers(own) == 3


def test_only_the_answer_is_charged_and_only_under_a_promise(own):
    account.enter(own.account, own.owner, 1, STAGES[0], FORMAL)
    account.enter(own.account, own.owner, 1, STAGES[1], FORMAL)
    assert answers(own) == 0
    account.enter(own.account, own.owner, 1, COLLECT, FORMAL)
    assert answers(own) == 1
    answer(own, 2, vm.NoNoise())
    assert answers(own) == 1


@pytest.mark.parametrize("stage", STAGES)
def test_sessions_and_stages_only_go_forward(own, stage):
    for number, name in enumerate(STAGES):
        account.enter(own.account, own.owner, 5, name, FORMAL)
        wrong = STAGES[number + 2 :] + STAGES[: number + 1]
        if stage in wrong:
            with pytest.raises(vm.VeilmapError):
                account.enter(own.account, own.owner, 5, stage, FORMAL)
    for older in (4, 5):
        with pytest.raises(vm.VeilmapError):
            account.enter(own.account, own.owner, older, STAGES[0], FORMAL)


def test_an_account_cannot_be_mixed_with_another_mechanisms(own):
    answer(own, 1)
    with pytest.raises(vm.VeilmapError):
        answer(own, 2, calibrated(vm.AggregateGaussian(epsilon=2), 3))
    assert answers(own) == 1


@pytest.mark.parametrize("text", ["{", "[]", "{}", json.dumps({"owner": "x", "session": -1})])
def test_a_damaged_account_pays_for_nothing(own, text):
    own.account.write_text(text)
    with pytest.raises(vm.VeilmapError):
        answer(own, 1)


def test_a_missing_account_is_not_an_empty_one(own):
    answer(own, 1)
    own.account.unlink()
    with pytest.raises(vm.VeilmapError):
        answer(own, 2)
    assert not own.account.exists()


def test_an_account_belongs_to_its_key(own, tmp_path):
    other = enrolment_in(tmp_path, "b")
    with pytest.raises(vm.VeilmapError):
        account.enter(own.account, other.owner, 1, STAGES[0], FORMAL)
    account.enrol(own.account, own.owner)  # again: nothing is lost
    answer(own, 1)
    account.enrol(own.account, own.owner)
    assert answers(own) == 1


def test_renamed_copied_and_replaced_data_leave_the_account_as_it_is(own, tmp_path):
    data = vm.Scene.synthetic(1).measure(users=1, links_per_user=5, seed=0)
    spent = []
    for session, name in enumerate(["links.parquet", "renamed.parquet", "replaced.parquet"], 1):
        data.save(tmp_path / name)
        settings = {
            "data": str(tmp_path / name),
            "mechanism": "aggregate",
            "noise-multiplier": 9.0,
            "key": str(tmp_path / "a"),
            "roster": str(tmp_path / "roster"),
            "account": str(own.account),
        }
        mine = app.node_settings(settings)
        answer(mine.enrolment, session, mine.mechanism)
        spent.append(answers(own))
    assert spent == [1, 2, 3]


def ask_often(own, given, times):
    """One process of many: how many answers it was allowed to give."""
    allowed = 0
    many = calibrated(vm.AggregateGaussian(epsilon=8, delta=1e-3), 5000)
    for _ in range(times):
        session = time.time_ns()
        try:
            answer(own, session, many)
            allowed += 1
        except vm.VeilmapError:
            continue  # another process was faster
    given.put(allowed)


def ask_at_once(own, given, times):
    """All processes ask for the very same answer."""
    allowed = 0
    for session in range(1, times + 1):
        for stage in STAGES[:3]:
            try:
                account.enter(own.account, own.owner, session, stage, FORMAL_LONG)
                allowed += stage == COLLECT
            except vm.VeilmapError:
                continue
    given.put(allowed)


FORMAL_LONG = calibrated(vm.AggregateGaussian(epsilon=8, delta=1e-3), 5000)


@pytest.mark.parametrize("asking", [ask_often, ask_at_once])
def test_answers_given_are_answers_charged_however_many_ask_at_once(own, asking):
    """Sixteen processes with a hundred requests each."""
    context = multiprocessing.get_context("fork")
    given = context.Queue()
    workers = [context.Process(target=asking, args=(own, given, 100)) for _ in range(16)]
    for worker in workers:
        worker.start()
    total = sum(given.get(timeout=300) for _ in workers)
    for worker in workers:
        worker.join()
    assert total == answers(own) > 0


def test_the_account_is_durable_before_the_answer(own, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    account.enter(own.account, own.owner, 1, STAGES[0], FORMAL)
    assert len(synced) >= 2  # the file, and its name in the folder
    assert asdict(account.load(own.account, own.owner))["session"] == 1
