/**
 * Shares of a contribution with proofs that it is no longer than the survey allows.
 *
 * The same bytes as veilmap.collection.pine.reports gives, where they are explained.
 */

/** @import {Bytes} from "./bytes.js" */
/** @import {Role} from "./task.js" */

import { joined, sha256, utf8 } from "./bytes.js";
import { at, multiplied, productSum, residue } from "./field.js";
import { PRIME, toBytes } from "./shares.js";
import { derivedSeed, expanded, expandedBytes, hmac, SEED_BYTES, USAGE } from "./xof.js";

/**
 * @typedef {object} Proofs  as the task has them
 * @property {number} dimension
 * @property {number} bound
 * @property {number} alpha
 * @property {number} checks
 * @property {number} successes
 * @property {number} proofs
 * @property {number} norm_proofs
 * @property {number} chunk
 * @property {number} norm_chunk
 */

/**
 * @typedef {object} Shape  of a circuit
 * @property {number} calls
 * @property {number} arity
 * @property {number} size
 * @property {boolean} squares
 */

/**
 * @typedef {object} Sizes  what follows from the task's proofs
 * @property {number} limit  the wraparound bound W
 * @property {number} normBits
 * @property {number} sumBits
 * @property {number} bits
 * @property {Shape} main
 * @property {Shape} norm
 * @property {number} measurement
 * @property {number} proofElements
 */

/**
 * @typedef {object} Measurement
 * @property {Float64Array} elements
 * @property {number[]} sums  of the wraparound checks
 */

const PAIR = 2 * SEED_BYTES;
const NONCE_BYTES = 16;
const BITS = 4; // entries that a byte chooses the signs of
const TRIES = 20;
const JOINT = 3; // random elements of a main circuit

/** @param {Proofs} proofs */
export function sizes(proofs) {
  const { dimension, bound, checks, chunk } = proofs;
  const limit = 2 ** bitsOf(Math.ceil(proofs.alpha * bound));
  const [normBits, sumBits] = [bitsOf(bound * bound), bitsOf(2 * limit - 1)];
  const bits = 2 * normBits + (sumBits + 1) * checks;
  const main = shape(Math.ceil(bits / chunk) + Math.ceil(checks / chunk), 2 * chunk, false);
  const norm = shape(Math.ceil(dimension / proofs.norm_chunk), proofs.norm_chunk, true);
  const proofElements = proofs.norm_proofs * proofLength(norm) + proofs.proofs * proofLength(main);
  const measurement = dimension + bits;
  return { limit, normBits, sumBits, bits, main, norm, measurement, proofElements };
}

/**
 * Length of an aggregator's share.
 *
 * @param {Proofs} proofs
 * @param {Role} role
 */
export function shareBytes(proofs, role) {
  const { measurement, proofElements } = sizes(proofs);
  return role === "helper" ? 3 * PAIR : 2 * PAIR + 4 * (measurement + proofElements);
}

/**
 * The leader's share and the helper's. Where too few wraparound checks pass, by chance, others are
 * drawn.
 *
 * @param {Proofs} proofs
 * @param {Int32Array} vector
 * @param {Bytes} digest  of the task
 * @param {Bytes} id
 * @param {Bytes} secret
 */
export async function proven(proofs, vector, digest, id, secret) {
  const hash = await sha256(utf8("veilmap nonce\0"), digest, id);
  const numbers = toBytes(Uint32Array.from(vector, (value) => value >>> 0));
  for (let attempt = 0; attempt < TRIES; attempt += 1) {
    const about = [utf8(`veilmap proof ${attempt}\0`), digest, id, numbers];
    const key = await hmac(secret, ...about);
    const found = await shares(proofs, vector, hash.slice(0, NONCE_BYTES), key);
    if (found) return found;
  }
  throw new Error("the chance of this is below any that counts");
}

/**
 * @param {Proofs} proofs
 * @param {Int32Array} vector
 * @param {Bytes} nonce
 * @param {Bytes} key
 */
async function shares(proofs, vector, nonce, key) {
  const own = sizes(proofs);
  /** @param {number} number */
  const seed = (number) => hmac(key, Uint8Array.of(number));
  const [ofMeasurement, ofProofs, ofProver] = [await seed(0), await seed(1), await seed(6)];
  const wraparoundBlinds = [await seed(4), await seed(2)];
  const jointBlinds = [await seed(5), await seed(3)];
  const mask = await expanded(ofMeasurement, USAGE.measurementShare, Uint8Array.of(1), own.measurement);
  /**
   * @param {Float64Array} elements
   * @param {number} usage
   * @param {Bytes[]} blinds
   */
  const partsOf = async (elements, usage, blinds) => {
    const theirs = mask.slice(0, elements.length);
    const both = [masked(elements, theirs), theirs];
    return Promise.all(
      both.map((share, role) => {
        const blind = /** @type {Bytes} */ (blinds[role]);
        return derivedSeed(blind, usage, joined(Uint8Array.of(role), nonce, toBytes(share)));
      }),
    );
  };
  const first = withNorm(proofs, own, vector);
  const wraparound = await partsOf(first, USAGE.wraparoundPart, wraparoundBlinds);
  const zeros = new Uint8Array(SEED_BYTES);
  const sums = await wraparoundSums(
    proofs, vector, await derivedSeed(zeros, USAGE.wraparoundSeed, joined(...wraparound)),
  );
  const checks = wraparoundBits(proofs, own, sums);
  if (!checks) return null;
  const elements = Float64Array.from([...first, ...checks]);
  const joint = await partsOf(elements, USAGE.jointPart, jointBlinds);
  const jointSeed = await derivedSeed(zeros, USAGE.jointSeed, joined(...joint));
  const made = await allProofs(proofs, own, { elements, sums }, jointSeed, ofProver);
  const binder = Uint8Array.of(proofs.norm_proofs, proofs.proofs, 1);
  const theirs = await expanded(ofProofs, USAGE.proofShare, binder, own.proofElements);
  /** @param {number} role */
  const head = (role) => {
    const list = [wraparound[1 - role], joint[1 - role], wraparoundBlinds[role], jointBlinds[role]];
    return joined(.../** @type {Bytes[]} */ (list));
  };
  const measurement = masked(elements, mask);
  return {
    elements: measurement.slice(0, proofs.dimension),
    leader: joined(head(0), toBytes(measurement), toBytes(masked(made, theirs))),
    helper: joined(head(1), ofMeasurement, ofProofs),
  };
}

/**
 * x, the bits of Σ x², and those of what it lacks to the square of the bound.
 *
 * @param {Proofs} proofs
 * @param {Sizes} own
 * @param {Int32Array} vector
 */
function withNorm({ bound }, { normBits }, vector) {
  const squared = vector.reduce((sum, value) => sum + value * value, 0);
  if (squared > bound * bound) throw new Error("the contribution is longer than it may be");
  const bits = [...bitsFrom(squared, normBits), ...bitsFrom(bound * bound - squared, normBits)];
  return Float64Array.from([...Array.from(vector, residue), ...bits]);
}

/**
 * ⟨z, x⟩ of every check: two bits an entry, 00 is −1, 11 is 1, and others are 0.
 *
 * @param {Proofs} proofs
 * @param {Int32Array} vector
 * @param {Bytes} seed
 */
async function wraparoundSums({ dimension, checks }, vector, seed) {
  const width = Math.ceil(dimension / BITS);
  const nothing = new Uint8Array(0);
  const stream = await expandedBytes(seed, USAGE.wraparoundRandomness, nothing, width * checks);
  return Array.from({ length: checks }, (_, check) => {
    let sum = 0;
    for (let i = 0; i < dimension; i += 1) {
      const pair = at(stream, check * width + (i >> 2)) >> (2 * (i & 3));
      sum += ((pair & 1) + ((pair >> 1) & 1) - 1) * at(vector, i);
    }
    return sum;
  });
}

/**
 * Bits of every check's sum, and whether it passed; null where too few did.
 *
 * @param {Proofs} proofs
 * @param {Sizes} own
 * @param {number[]} sums
 */
function wraparoundBits({ successes }, { limit, sumBits }, sums) {
  let passed = 0;
  const found = sums.flatMap((sum) => {
    const shifted = sum + limit - 1;
    const passes = shifted >= 0 && shifted < 2 * limit && passed < successes;
    passed += Number(passes);
    return [...bitsFrom(residue(shifted), sumBits), Number(passes)];
  });
  return passed < successes ? null : found;
}

/**
 * All proofs one after the other: of the norm first, then of everything else.
 *
 * @param {Proofs} proofs
 * @param {Sizes} own
 * @param {Measurement} measurement
 * @param {Bytes} jointSeed
 * @param {Bytes} proverSeed
 */
async function allProofs(proofs, own, measurement, jointSeed, proverSeed) {
  const { norm_proofs: norms, proofs: mains } = proofs;
  const count = norms * own.norm.arity + mains * own.main.arity;
  const numbered = Uint8Array.of(norms, mains);
  const random = await expanded(proverSeed, USAGE.proveRandomness, numbered, count);
  const joint = await expanded(
    jointSeed, USAGE.jointRandomness, Uint8Array.of(mains), JOINT * mains,
  );
  /** @type {number[]} */
  const found = [];
  let used = 0;
  for (let number = 0; number < norms + mains; number += 1) {
    const shape = number < norms ? own.norm : own.main;
    const start = JOINT * (number - norms);
    const values =
      number < norms
        ? measurement.elements.slice(0, proofs.dimension)
        : mainValues(proofs, own, measurement, at(joint, start), at(joint, start + 1));
    found.push(...proof(shape, values, random.slice(used, used + shape.arity)));
    used += shape.arity;
  }
  return Float64Array.from(found);
}

/**
 * The inputs of a main circuit's gadget: (rⁱ bᵢ, bᵢ − 1) of every bit and then, in calls of their
 * own, (r'ⁱ (sum − told), passed) of every check.
 *
 * @param {Proofs} proofs
 * @param {Sizes} own
 * @param {Measurement} measurement
 * @param {number} ofBits
 * @param {number} ofChecks
 */
function mainValues(proofs, own, { elements, sums }, ofBits, ofChecks) {
  const bits = elements.subarray(proofs.dimension);
  const bitCalls = Math.ceil(own.bits / proofs.chunk);
  const values = new Float64Array(own.main.calls * own.main.arity);
  let weight = 1;
  bits.forEach((bit, i) => {
    values[2 * i] = bit * weight;
    values[2 * i + 1] = bit === 0 ? PRIME - 1 : 0;
    weight = multiplied(weight, ofBits);
  });
  weight = 1;
  sums.forEach((sum, i) => {
    const start = 2 * own.normBits + i * (own.sumBits + 1);
    let told = 0;
    for (let k = 0; k < own.sumBits; k += 1) told += at(bits, start + k) * 2 ** k;
    const wrong = residue(sum + own.limit - 1 - told);
    const place = bitCalls * own.main.arity + 2 * i;
    values[place] = multiplied(weight, wrong);
    values[place + 1] = at(bits, start + own.sumBits);
    weight = multiplied(weight, ofChecks);
  });
  return values;
}

/**
 * A proof: what wires begin with, and coefficients of the gadget's polynomial.
 *
 * @param {Shape} shape
 * @param {Float64Array} values  that go into the gadget, call after call
 * @param {Uint32Array} random
 */
function proof(shape, values, random) {
  /** @param {number} wire */
  const column = (wire) => {
    const found = new Float64Array(shape.size);
    found[0] = at(random, wire);
    for (let call = 0; call < shape.calls; call += 1) {
      found[call + 1] = values[call * shape.arity + wire] ?? 0;
    }
    return found;
  };
  /** @type {[Float64Array, Float64Array][]} */
  const pairs = [];
  for (let wire = 0; wire < shape.arity; wire += shape.squares ? 1 : 2) {
    const first = column(wire);
    pairs.push([first, shape.squares ? first : column(wire + 1)]);
  }
  return [...random, ...productSum(shape.size, pairs)];
}

/**
 * Elements less a share of them.
 *
 * @param {Float64Array} elements
 * @param {Uint32Array} mask
 */
function masked(elements, mask) {
  return Uint32Array.from(elements, (value, i) => residue(value - at(mask, i)));
}

/**
 * @param {number} calls
 * @param {number} arity
 * @param {boolean} squares
 * @returns {Shape}
 */
function shape(calls, arity, squares) {
  return { calls, arity, size: 2 ** bitsOf(calls), squares };
}

/** @param {Shape} shape */
function proofLength({ arity, size }) {
  return arity + 2 * size - 1;
}

/**
 * How many bits a whole number below 2⁵³ has.
 *
 * @param {number} whole
 */
function bitsOf(whole) {
  return whole === 0 ? 0 : whole.toString(2).length;
}

/**
 * The lowest bits of a whole number, the lowest first.
 *
 * @param {number} whole
 * @param {number} count
 */
function bitsFrom(whole, count) {
  return Array.from({ length: count }, (_, k) => Math.floor(whole / 2 ** k) % 2);
}
