"""Every byte of published vectors, where they are, and of one of our own making."""

import json
from pathlib import Path

import numpy as np
import pytest

from veilmap.collection import shares
from veilmap.collection.pine import reports, sharding, verifying
from veilmap.collection.pine.parameters import NormProofs

OWN = Path(__file__).parent / "vector.json"
PUBLISHED = Path(__file__).parents[4] / "shared" / "data" / "pine"
FOUND = sorted(PUBLISHED.glob("Pine32HmacSha256Aes128_*.json"))


def hexed(elements):
    return shares.to_bytes(elements.astype("uint32")).hex()


@pytest.mark.skipif(not FOUND, reason="the draft's test vectors are not here")
def test_there_are_four_published_vectors():
    assert len(FOUND) == 4


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_a_published_vector(path):
    """Public share, input shares, preparation, output shares, aggregate shares and result."""
    known = json.loads(path.read_text())
    parameters = NormProofs(
        dimension=known["dimension"], bound=known["l2_norm_bound"], alpha=known["alpha"],
        checks=known["num_wr_checks"], successes=known["num_wr_successes"],
        proofs=known["proofs"], norm_proofs=known["proofs_norm_equality"],
        chunk=known["chunk_length"], norm_chunk=known["chunk_length_norm_equality"],
    )  # fmt: skip
    key, steps = bytes.fromhex(known["verify_key"]), 2 ** known["num_frac_bits"]
    totals = []
    for one in known["prep"]:
        nonce, random = bytes.fromhex(one["nonce"]), bytes.fromhex(one["rand"])
        vector = np.array([round(value * steps) for value in one["measurement"]])
        made = sharding.sharded(parameters, vector, nonce, random)
        assert b"".join(made.parts.wraparound + made.parts.joint).hex() == one["public_share"]
        leader = hexed(np.concatenate([made.leader.measurement, made.leader.proofs]))
        blinds = [own.wraparound_blind + own.joint_blind for own in (made.leader, made.helper)]
        assert leader + blinds[0].hex() == one["input_shares"][0]
        assert (b"".join(made.helper_seeds) + blinds[1]).hex() == one["input_shares"][1]
        both = [
            verifying.begun(parameters, role, key, nonce, made.parts, own)
            for role, own in enumerate((made.leader, made.helper))
        ]
        told = [
            hexed(message.checks) + (message.wraparound_part + message.joint_part).hex()
            for _, message in both
        ]
        assert [told] == one["prep_shares"]
        seeds = verifying.decided(parameters, *(message for _, message in both))
        assert [b"".join(seeds).hex()] == one["prep_messages"]
        outputs = [verifying.finished(state, seeds) for state, _ in both]
        assert [hexed(output) for output in outputs] == ["".join(out) for out in one["out_shares"]]
        totals.append([output.astype("uint32") for output in outputs])
    nothing = np.zeros(parameters.dimension, dtype=np.uint32)
    sums = [shares.added(nothing, *own) for own in zip(*totals, strict=True)]
    assert [hexed(own) for own in sums] == known["agg_shares"]
    result = shares.centred(shares.added(*sums)) / steps
    np.testing.assert_array_equal(result, known["agg_result"])


def test_our_own_vector():
    """A report as it travels, with entries of either sign and several proofs of each kind."""
    known = json.loads(OWN.read_text())
    parameters, vector = NormProofs(**known["parameters"]), np.array(known["vector"])
    digest, report = bytes.fromhex(known["digest"]), bytes.fromhex(known["report"])
    halves = reports.prove(parameters, vector, digest, report, bytes.fromhex(known["secret"]))
    assert [half.hex() for half in halves] == known["halves"]
    key, nonce = bytes.fromhex(known["key"]), reports.nonce_of(digest, report)
    message = reports.message(parameters, key, nonce, halves[0])
    assert message.hex() == known["message"]
    found = [
        reports.elements_of(parameters, halves[0]),
        reports.judged(parameters, key, nonce, halves[1], message),
    ]
    assert [hexed(own) for own in found] == known["shares"]
    np.testing.assert_array_equal(shares.centred(shares.added(*found)), vector)


def test_a_helpers_share_and_what_the_leader_says_have_the_lengths_that_they_should():
    known = json.loads(OWN.read_text())
    parameters = NormProofs(**known["parameters"])
    lengths = [reports.share_bytes(parameters, role) for role in (0, 1)]
    assert [len(half) // 2 for half in known["halves"]] == lengths
    assert len(known["message"]) // 2 == reports.message_bytes(parameters)
