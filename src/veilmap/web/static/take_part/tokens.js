/**
 * Tokens of invitations: the leader signs a report's id without seeing it (RFC 9474), so that the
 * signature admits one report and says nothing of which invitation it came from.
 */

/** @import {Bytes} from "./bytes.js" */
/** @import {Admission} from "./task.js" */

import { bigEndian, joined, random, toHex, utf8 } from "./bytes.js";

/**
 * A token on its way to be signed.
 *
 * @typedef {{message: Bytes, inverse: bigint}} Blinded
 */

const BITS = 2048; // of the RSA key
const EXPONENT = 65537n;
const SALT = 48; // bytes
const HASH = "SHA-384";
const HASH_BYTES = 48;
const WORK_BYTES = 8;

/**
 * Length of what a report shows to be taken.
 *
 * @param {Admission} admission
 */
export function credentialBytes(admission) {
  return admission.type === "Invitations" ? BITS / 8 : WORK_BYTES;
}

/**
 * What to send with an invitation's code, and how to take the blinding off the answer.
 *
 * @param {string} key  the RSA modulus n
 * @param {Bytes} digest  of the task
 * @param {Bytes} report  its id
 * @returns {Promise<Blinded>}
 */
export async function blinded(key, digest, report) {
  const n = BigInt(`0x${key}`);
  const encoded = toNumber(await pssEncoded(token(digest, report)));
  for (;;) {
    const factor = toNumber(random(BITS / 8));
    const inverse = inverseOf(factor, n);
    if (factor < 2n || factor >= n || inverse === null) continue;
    // m rᵉ mod n
    const hidden = (encoded * power(factor, EXPONENT, n)) % n;
    return { message: bigEndian(hidden, BITS / 8), inverse };
  }
}

/**
 * The credential: the signature without its blinding.
 *
 * @param {string} key
 * @param {Blinded} token
 * @param {Bytes} signature
 */
export function finished(key, { inverse }, signature) {
  const n = BigInt(`0x${key}`);
  return bigEndian((toNumber(signature) * inverse) % n, BITS / 8);
}

/**
 * Whether a credential is good for a report.
 *
 * @param {string} key
 * @param {Bytes} credential
 * @param {Bytes} digest
 * @param {Bytes} report
 */
export async function isGood(key, credential, digest, report) {
  const n = bigEndian(BigInt(`0x${key}`), BITS / 8);
  const web = btoa(String.fromCharCode(...n));
  const modulus = web.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  const jwk = { kty: "RSA", n: modulus, e: "AQAB" };
  const how = { name: "RSA-PSS", hash: HASH };
  const own = await crypto.subtle.importKey("jwk", jwk, how, false, ["verify"]);
  const check = { name: "RSA-PSS", saltLength: SALT };
  return crypto.subtle.verify(check, own, credential, token(digest, report));
}

/**
 * @param {Bytes} digest
 * @param {Bytes} report
 */
function token(digest, report) {
  return joined(utf8("veilmap token\0"), digest, report);
}

/**
 * EMSA-PSS-ENCODE of RFC 8017, section 9.1.1, for 2047 bits and with a random salt.
 *
 * @param {Bytes} message
 */
async function pssEncoded(message) {
  const salt = random(SALT);
  const tag = await sha384(new Uint8Array(8), await sha384(message), salt);
  const padding = new Uint8Array(BITS / 8 - SALT - HASH_BYTES - 2);
  const block = joined(padding, Uint8Array.of(1), salt);
  const mask = await mgf1(tag, block.length);
  const hidden = block.map((byte, i) => byte ^ (mask[i] ?? 0));
  hidden[0] = (hidden[0] ?? 0) & 0x7f; // 2047 bits: one less than the key's
  return joined(hidden, tag, Uint8Array.of(0xbc));
}

/**
 * MGF1 of RFC 8017, appendix B.2.1.
 *
 * @param {Bytes} seed
 * @param {number} length
 */
async function mgf1(seed, length) {
  const blocks = Array.from({ length: Math.ceil(length / HASH_BYTES) }, (_, k) =>
    sha384(seed, bigEndian(k, 4)),
  );
  return joined(...(await Promise.all(blocks))).subarray(0, length);
}

/**
 * @param {...Bytes} parts
 * @returns {Promise<Bytes>}
 */
async function sha384(...parts) {
  return new Uint8Array(await crypto.subtle.digest(HASH, joined(...parts)));
}

/** @param {Bytes} bytes */
function toNumber(bytes) {
  return BigInt(`0x${toHex(bytes)}`);
}

/**
 * base^exponent mod n, by squaring.
 *
 * @param {bigint} base
 * @param {bigint} exponent
 * @param {bigint} n
 */
function power(base, exponent, n) {
  let [result, square] = [1n, base % n];
  for (let rest = exponent; rest > 0n; rest >>= 1n) {
    if (rest & 1n) result = (result * square) % n;
    square = (square * square) % n;
  }
  return result;
}

/**
 * The number that a value times it is 1 mod n, by Euclid's algorithm; null if there is none.
 *
 * @param {bigint} value
 * @param {bigint} n
 */
function inverseOf(value, n) {
  let [a, b, x, y] = [n, value % n, 0n, 1n];
  while (b > 0n) [a, b, x, y] = [b, a % b, y, x - (a / b) * y];
  return a === 1n ? ((x % n) + n) % n : null;
}
