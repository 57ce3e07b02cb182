/**
 * A report: what a participant sends to each aggregator, byte for byte.
 *
 *     id 16 | leader's hash 32 | helper's hash 32 | length of the credential 2 | credential | share
 *
 * The leader's share is a blind and the masked vector, the helper's a seed; where contributions are
 * proven, both are as in proofs.js. The same bytes as veilmap.collection.report gives, which says why
 * there is a blind.
 */

/** @import {Bytes} from "./bytes.js" */
/** @import {Proofs} from "./proofs.js" */
/** @import {Role, Task} from "./task.js" */

import { bigEndian, joined, sha256, utf8 } from "./bytes.js";
import { proven, shareBytes } from "./proofs.js";
import { SEED_BYTES, split, toBytes } from "./shares.js";
import { credentialBytes } from "./tokens.js";

export const ID_BYTES = 16;
const HASH_BYTES = 32;
const BLIND_BYTES = 32;
const HEAD_BYTES = ID_BYTES + 2 * HASH_BYTES + 2;

/**
 * Everything of a report but the credential, which proves that it may be sent.
 *
 * @typedef {object} Shares
 * @property {Bytes} id
 * @property {Bytes} hashes  of the leader's share and the helper's
 * @property {Uint32Array} elements  the masked vector in the leader's share
 * @property {Bytes} leader
 * @property {Bytes} helper
 */

/**
 * The shares of a contribution. The same secret, report and vector give the same ones, so that a
 * report that is made again after a reload is the same report, which counts once. Seed and blind
 * depend on the vector: no two vectors ever have the same mask, which would tell their difference.
 *
 * @param {Int32Array} vector
 * @param {Bytes} digest  of the task
 * @param {Bytes} id
 * @param {Bytes} secret  random, and kept until the report was taken
 * @param {Proofs | null} proofs  of the task
 * @returns {Promise<Shares>}
 */
export async function shared(vector, digest, id, secret, proofs) {
  const made = proofs
    ? await proven(proofs, vector, digest, id, secret)
    : await unproven(vector, digest, id, secret);
  const hashes = joined(
    await shareHash("leader", digest, id, made.leader),
    await shareHash("helper", digest, id, made.helper),
  );
  return { id, hashes, ...made };
}

/**
 * @param {Int32Array} vector
 * @param {Bytes} digest
 * @param {Bytes} id
 * @param {Bytes} secret
 */
async function unproven(vector, digest, id, secret) {
  const seed = await derived("seed", secret, digest, id, vector);
  const elements = await split(vector, digest, id, seed);
  const leader = joined(await derived("blind", secret, digest, id, vector), toBytes(elements));
  return { elements, leader, helper: seed };
}

/**
 * The half of a report for one aggregator, as it travels.
 *
 * @param {Shares} shares
 * @param {Role} role
 * @param {Bytes} credential
 */
export function half(shares, role, credential) {
  const length = bigEndian(credential.length, 2);
  return joined(shares.id, shares.hashes, length, credential, shares[role]);
}

/**
 * Length of a half: all reports have the same.
 *
 * @param {Task} task
 * @param {Role} role
 */
export function halfBytes(task, role) {
  const bare = role === "leader" ? BLIND_BYTES + 4 * task.numbers : SEED_BYTES;
  const share = task.proofs ? shareBytes(task.proofs, role) : bare;
  return HEAD_BYTES + credentialBytes(task.admission) + share;
}

/**
 * 32 bytes that nobody can tell from random ones without the secret.
 *
 * @param {"seed" | "blind"} name
 * @param {Bytes} secret
 * @param {Bytes} digest
 * @param {Bytes} id
 * @param {Int32Array} vector
 * @returns {Promise<Bytes>}
 */
async function derived(name, secret, digest, id, vector) {
  const how = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", secret, how, false, ["sign"]);
  const numbers = toBytes(Uint32Array.from(vector, (value) => value >>> 0));
  const content = joined(utf8(`veilmap ${name}\0`), digest, id, numbers);
  return new Uint8Array(await crypto.subtle.sign("HMAC", key, content));
}

/**
 * @param {Role} role
 * @param {Bytes} digest
 * @param {Bytes} id
 * @param {Bytes} share
 */
function shareHash(role, digest, id, share) {
  return sha256(utf8(`veilmap ${role} share\0`), digest, id, share);
}
