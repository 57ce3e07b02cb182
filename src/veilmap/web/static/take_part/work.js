/** Proof of work: a number with SHA-256(…, number) of so many leading 0 bits. */

/** @import {Bytes} from "./bytes.js" */

import { bigEndian, joined, utf8 } from "./bytes.js";

const SLICE = 40; // milliseconds of work between looks at whether the page wants something
const TRIES = 2000; // between looks at the clock
const PREFIX = 61; // bytes: "veilmap work\0", the task's digest, and the report's id
const LENGTH = 8 * (PREFIX + 8); // bits of what is hashed

/** First 32 bits of the fractional parts of roots of the first primes, as SHA-256 has them. */
const PRIMES = firstPrimes(64);
const ROUND = Int32Array.from(PRIMES, (prime) => fraction(Math.cbrt(prime)));
const BEGIN = Int32Array.from(PRIMES.slice(0, 8), (prime) => fraction(Math.sqrt(prime)));

/** @param {number} root */
function fraction(root) {
  return ((root - Math.floor(root)) * 2 ** 32) | 0;
}

/** @param {number} count */
function firstPrimes(count) {
  /** @type {number[]} */
  const found = [];
  for (let n = 2; found.length < count; n += 1) if (found.every((p) => n % p)) found.push(n);
  return found;
}

/**
 * The least number that does it, as a credential; about 2^bits tries, in slices between which the
 * page stays alive. `told` hears how probable it was to be done by then.
 *
 * @param {number} bits
 * @param {Bytes} digest  of the task
 * @param {Bytes} report  its id
 * @param {(share: number) => void} [told]
 * @returns {Promise<Bytes>}
 */
export async function solved(bits, digest, report, told = () => {}) {
  const prefix = joined(utf8("veilmap work\0"), digest, report);
  const trial = trials(prefix);
  for (let number = 0; ; ) {
    const until = performance.now() + SLICE;
    while (performance.now() < until) {
      for (const end = number + TRIES; number < end; number += 1) {
        if (trial(number) >>> (32 - bits) === 0) return bigEndian(number, 8);
      }
    }
    told(1 - Math.exp(-number / 2 ** bits));
    await new Promise((resume) => setTimeout(resume));
  }
}

/**
 * The first 32 bits of SHA-256(prefix, number), number by number.
 *
 * The number's eight bytes follow the prefix of 61: three end the first block of 64 bytes and are 0
 * for all numbers below 2^40, so that this block is worked out once.
 *
 * @param {Bytes} prefix
 */
function trials(prefix) {
  if (prefix.length !== PREFIX) throw new RangeError("digest or id has the wrong length");
  const first = new DataView(joined(prefix, new Uint8Array(3)).buffer);
  const words = new Int32Array(64);
  for (let i = 0; i < 16; i += 1) words[i] = first.getInt32(4 * i);
  const middle = compressed(BEGIN, words, new Int32Array(8));
  const state = new Int32Array(8);
  return (/** @type {number} */ number) => {
    words.fill(0, 0, 16);
    words[0] = Math.floor(number / 256);
    words[1] = ((number & 255) << 24) | 0x80_0000;
    words[15] = LENGTH;
    return compressed(middle, words, state)[0] ?? 0;
  };
}

/**
 * SHA-256's compression function (FIPS 180-4, section 6.2.2).
 *
 * @param {Int32Array} before
 * @param {Int32Array} w  64 words, of which the first 16 are the block
 * @param {Int32Array} after
 */
function compressed(before, w, after) {
  for (let t = 16; t < 64; t += 1) {
    const [x, y] = [at(w, t - 15), at(w, t - 2)];
    const low = turned(x, 7) ^ turned(x, 18) ^ (x >>> 3);
    const high = turned(y, 17) ^ turned(y, 19) ^ (y >>> 10);
    w[t] = (high + at(w, t - 7) + low + at(w, t - 16)) | 0;
  }
  let [a, b, c, d] = [at(before, 0), at(before, 1), at(before, 2), at(before, 3)];
  let [e, f, g, h] = [at(before, 4), at(before, 5), at(before, 6), at(before, 7)];
  for (let t = 0; t < 64; t += 1) {
    const sum = turned(e, 6) ^ turned(e, 11) ^ turned(e, 25);
    const one = (h + sum + ((e & f) ^ (~e & g)) + at(ROUND, t) + at(w, t)) | 0;
    const two = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = (d + one) | 0;
    d = c;
    c = b;
    b = a;
    a = (one + two) | 0;
  }
  [a, b, c, d, e, f, g, h].forEach((word, i) => (after[i] = (at(before, i) + word) | 0));
  return after;
}

/**
 * @param {Int32Array} words
 * @param {number} i
 */
function at(words, i) {
  return words[i] ?? 0;
}

/**
 * @param {number} word
 * @param {number} bits
 */
function turned(word, bits) {
  return (word >>> bits) | (word << (32 - bits));
}
