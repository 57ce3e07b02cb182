/**
 * The extendable-output function of proofs: HMAC-SHA-256 gives a key, AES-128 in counter mode bytes.
 *
 * The same as veilmap.collection.pine.xof.
 */

/** @import {Bytes} from "./bytes.js" */

import { bigEndian, joined } from "./bytes.js";
import { PRIME } from "./shares.js";

/** What bytes are for. */
export const USAGE = {
  measurementShare: 1,
  proofShare: 2,
  jointRandomness: 3,
  proveRandomness: 4,
  jointSeed: 6,
  jointPart: 7,
  wraparoundRandomness: 8,
  wraparoundSeed: 9,
  wraparoundPart: 10,
};

export const SEED_BYTES = 32;

const VERSION = 1;
const ALGORITHM = 0xffff1005;
const BYTES = 4; // of an element, little-endian
const SPARE = 64; // elements: one word in 4,096 is no element and is skipped

/**
 * HMAC-SHA-256 of all parts one after another.
 *
 * @param {Bytes} key
 * @param {...Bytes} parts
 * @returns {Promise<Bytes>}
 */
export async function hmac(key, ...parts) {
  const how = { name: "HMAC", hash: "SHA-256" };
  const own = await crypto.subtle.importKey("raw", key, how, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", own, joined(...parts)));
}

/**
 * The first bytes that seed, usage and binder expand to.
 *
 * @param {Bytes} seed
 * @param {number} usage
 * @param {Bytes} binder
 * @param {number} count
 * @returns {Promise<Bytes>}
 */
export async function expandedBytes(seed, usage, binder, count) {
  const tag = joined(bigEndian(VERSION, 1), bigEndian(ALGORITHM, 4), bigEndian(usage, 2));
  const digest = await hmac(seed, bigEndian(tag.length, 1), tag, binder);
  const key = await crypto.subtle.importKey("raw", digest.slice(0, 16), "AES-CTR", false, ["encrypt"]);
  const how = { name: "AES-CTR", counter: digest.slice(16), length: 128 };
  return new Uint8Array(await crypto.subtle.encrypt(how, key, new Uint8Array(count)));
}

/**
 * A seed that depends on another, a usage and what it is bound to.
 *
 * @param {Bytes} seed
 * @param {number} usage
 * @param {Bytes} binder
 */
export function derivedSeed(seed, usage, binder) {
  return expandedBytes(seed, usage, binder, SEED_BYTES);
}

/**
 * Uniform elements: words of the stream, without those that are not below q.
 *
 * @param {Bytes} seed
 * @param {number} usage
 * @param {Bytes} binder
 * @param {number} count
 */
export async function expanded(seed, usage, binder, count) {
  for (let words = count + Math.floor(count / 1024) + SPARE; ; words *= 2) {
    const stream = new DataView((await expandedBytes(seed, usage, binder, BYTES * words)).buffer);
    const found = new Uint32Array(count);
    let filled = 0;
    for (let word = 0; word < words && filled < count; word += 1) {
      const value = stream.getUint32(BYTES * word, true);
      if (value < PRIME) {
        found[filled] = value;
        filled += 1;
      }
    }
    if (filled === count) return found;
  }
}
