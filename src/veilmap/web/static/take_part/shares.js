/**
 * Shares of a vector of whole numbers modulo a prime: a seed for the helper, the rest for the leader.
 *
 * The same numbers as veilmap.collection.shares gives.
 */

/** @import {Bytes} from "./bytes.js" */

import { sha256, utf8 } from "./bytes.js";

/** q: the field of verified contributions. */
export const PRIME = 2 ** 32 - 2 ** 20 + 1;
export const SEED_BYTES = 32;

const BYTES = 4; // of an element, little-endian
const BLOCK = 16; // bytes that AES makes of one counter
const CHUNK = 2 ** 20; // bytes of the stream that are made at once

/**
 * The leader's share, (v − r) mod q, with r what the helper's seed expands to.
 *
 * @param {Int32Array} vector
 * @param {Bytes} digest  of the task
 * @param {Bytes} report  its id
 * @param {Bytes} seed
 */
export async function split(vector, digest, report, seed) {
  const mask = await expanded(seed, digest, report, vector.length);
  return mask.map((r, i) => residue((vector[i] ?? 0) - r));
}

/**
 * The helper's share: `count` elements that depend on seed, task and report alone.
 *
 * Words of AES-256 in counter mode; those that are no residue modulo q are skipped.
 *
 * @param {Bytes} seed
 * @param {Bytes} digest
 * @param {Bytes} report
 * @param {number} count
 */
export async function expanded(seed, digest, report, count) {
  const raw = await sha256(utf8("veilmap mask\0"), digest, report, seed);
  const key = await crypto.subtle.importKey("raw", raw, "AES-CTR", false, ["encrypt"]);
  const found = new Uint32Array(count);
  let filled = 0;
  for (let chunk = 0; filled < count; chunk += 1) {
    const words = await stream(key, chunk);
    for (let at = 0; at < CHUNK && filled < count; at += BYTES) {
      const word = words.getUint32(at, true);
      if (word < PRIME) {
        found[filled] = word;
        filled += 1;
      }
    }
  }
  return found;
}

/**
 * A chunk of the key's stream: zeros, encrypted.
 *
 * @param {CryptoKey} key
 * @param {number} chunk
 */
async function stream(key, chunk) {
  const counter = new Uint8Array(BLOCK);
  new DataView(counter.buffer).setUint32(BLOCK - 4, (chunk * CHUNK) / BLOCK);
  // Python counts in all 128 bits; the lowest 64 of them never overflow.
  const how = { name: "AES-CTR", counter, length: 64 };
  return new DataView(await crypto.subtle.encrypt(how, key, new Uint8Array(CHUNK)));
}

/**
 * Elements as they travel: four bytes each, little-endian.
 *
 * @param {Uint32Array} elements
 * @returns {Bytes}
 */
export function toBytes(elements) {
  const view = new DataView(new ArrayBuffer(BYTES * elements.length));
  elements.forEach((element, i) => view.setUint32(BYTES * i, element, true));
  return new Uint8Array(view.buffer);
}

/** @param {number} whole */
function residue(whole) {
  const rest = whole % PRIME;
  return rest < 0 ? rest + PRIME : rest;
}
