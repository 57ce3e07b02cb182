/**
 * What this browser keeps of a report until both aggregators have confirmed it, so that a reload goes
 * on with the same report: its id, a secret, and the token. Of measurements it keeps nothing.
 */

/** @import {Bytes} from "./bytes.js" */
/** @import {Blinded} from "./tokens.js" */

import { fromHex, random, sha256, toHex, utf8 } from "./bytes.js";
import { ID_BYTES } from "./report.js";

const SECRET_BYTES = 32;
const TOOK_PART = "veilmap-took-part-";

/**
 * @typedef {object} Begun
 * @property {string} key  under which it is kept
 * @property {Bytes} id  of the report
 * @property {Bytes} secret  from which seed and blind are made
 * @property {Blinded | null} blinded
 */

/**
 * What was begun with an invitation, or with none; a new id and secret if nothing was.
 *
 * @param {string} digest  of the task
 * @param {string} code  of the invitation, of which the hash alone is kept
 * @returns {Promise<Begun>}
 */
export async function begun(digest, code) {
  const key = `veilmap-report-${digest}-${toHex(await sha256(utf8(code)))}`;
  const fresh = { key, id: random(ID_BYTES), secret: random(SECRET_BYTES), blinded: null };
  try {
    const { id, secret, message, inverse } = JSON.parse(read(key) ?? "");
    const token = message && { message: fromHex(message), inverse: BigInt(`0x${inverse}`) };
    const found = { key, id: fromHex(id), secret: fromHex(secret), blinded: token || null };
    const sound = found.id.length === ID_BYTES && found.secret.length === SECRET_BYTES;
    return sound ? found : fresh;
  } catch {
    return fresh;
  }
}

/** @param {Begun} own */
export function keep({ key, id, secret, blinded }) {
  const token = blinded && {
    message: toHex(blinded.message),
    inverse: blinded.inverse.toString(16),
  };
  write(key, JSON.stringify({ id: toHex(id), secret: toHex(secret), ...token }));
}

/** @param {Begun} own */
export function forget({ key }) {
  try {
    localStorage.removeItem(key);
  } catch {
    // nothing was kept either
  }
}

/**
 * Notes that this browser took part in a survey.
 *
 * @param {string} digest
 */
export function noteTakenPart(digest) {
  write(TOOK_PART + digest, "yes");
}

/** @param {string} digest */
export function tookPart(digest) {
  return read(TOOK_PART + digest) !== null;
}

/**
 * Browsers may forbid keeping anything; a report then lasts as long as the page.
 *
 * @param {string} key
 */
function read(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

/**
 * @param {string} key
 * @param {string} value
 */
function write(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // as above
  }
}
