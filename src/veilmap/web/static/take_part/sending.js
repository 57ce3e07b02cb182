/** Requests that tell something: the invitation's to the leader, and a half to each aggregator. */

/** @import {Bytes} from "./bytes.js" */
/** @import {Begun} from "./kept.js" */
/** @import {Shares} from "./report.js" */
/** @import {Role, Task} from "./task.js" */

import { bytesOf, fromHex, joined, toHex, utf8 } from "./bytes.js";
import { keep } from "./kept.js";
import { Problem } from "./problem.js";
import { half } from "./report.js";
import { hostOf } from "./task.js";
import { blinded, finished, isGood } from "./tokens.js";
import { solved } from "./work.js";

/** @typedef {(words: string, share?: number) => void} Told */

const PAUSES = [1, 2, 4, 8]; // seconds before an upload is tried again
const LONGEST = 300; // seconds for a request; a large half on a slow line takes minutes
const ANSWER = 20_000; // bytes of an answer
const LATER = [408, 429, 502, 503, 504]; // answers after which another try may succeed

/** @type {Record<Role, string>} */
export const NAMES = { leader: "first aggregator", helper: "second aggregator" };

/**
 * What shows that a report may be sent: work, or an invitation changed into a token.
 *
 * @param {Task} task
 * @param {Begun} own
 * @param {string} code
 * @param {Told} told
 */
export async function credentialFor(task, own, code, told) {
  if (task.admission.type === "Invitations") return token(task, task.admission.key, own, code, told);
  const words = "Computing the proof of work that this survey asks of every report …";
  told(words, 0);
  return solved(task.admission.bits, task.digestBytes, own.id, (share) => told(words, share));
}

/**
 * @param {Task} task
 * @param {string} key
 * @param {Begun} own
 * @param {string} code
 * @param {Told} told
 */
async function token(task, key, own, code, told) {
  told("Changing the invitation into a token …");
  own.blinded ??= await blinded(key, task.digestBytes, own.id);
  // An invitation can be changed once: whoever reloads must ask for the same token again.
  keep(own);
  const body = utf8(JSON.stringify({ code, blinded: toHex(own.blinded.message) }));
  const answer = await posted(task, "leader", "tokens", body, "application/json", told);
  const signature = hexOf(answer.signature, "leader");
  const credential = finished(key, own.blinded, signature);
  if (await isGood(key, credential, task.digestBytes, own.id)) return credential;
  throw new Problem(
    "The first aggregator’s signature on your invitation’s token is wrong, so nothing was sent." +
      " Tell whoever invited you.",
  );
}

/**
 * Sends one half, and gives back the signature by which its receiver confirms it.
 *
 * @param {Task} task
 * @param {Role} role
 * @param {Shares} shares
 * @param {Bytes} credential
 * @param {Told} told
 * @returns {Promise<string>}
 */
export async function sent(task, role, shares, credential, told) {
  told(`Sending to the ${NAMES[role]}, ${hostOf(task[role])} …`);
  const body = half(shares, role, credential);
  const answer = await posted(task, role, "reports", body, "application/octet-stream", told);
  const receipt = hexOf(answer.receipt, role);
  if ((await isSigned(task, role, shares, receipt)) === false) {
    throw new Problem(
      `The ${NAMES[role]} answered with a receipt that it did not sign: the report may not have` +
        " arrived. Send it again; if that does not help, tell whoever invited you.",
      "receipt",
    );
  }
  return toHex(receipt);
}

/**
 * @param {unknown} digits
 * @param {Role} role
 */
function hexOf(digits, role) {
  try {
    return fromHex(String(digits));
  } catch {
    throw new Problem(`The ${NAMES[role]}’s answer is damaged. Send the report again.`, "answer");
  }
}

/**
 * Whether the aggregator signed the receipt; null where the browser does not know Ed25519.
 *
 * @param {Task} task
 * @param {Role} role
 * @param {Shares} shares
 * @param {Bytes} receipt
 */
async function isSigned(task, role, { id, hashes }, receipt) {
  const raw = fromHex(role === "leader" ? task.leader_key : task.helper_key);
  const key = await crypto.subtle
    .importKey("raw", raw, "Ed25519", false, ["verify"])
    .catch(() => null);
  if (!key) return null;
  const text = joined(utf8("veilmap receipt\0"), task.digestBytes, utf8(role), id, hashes);
  return crypto.subtle.verify("Ed25519", key, receipt, text);
}

/**
 * An answer to a request, which is made again a few times while its receiver does not answer.
 *
 * @param {Task} task
 * @param {Role} role
 * @param {"tokens" | "reports"} what
 * @param {Bytes} body
 * @param {string} kind
 * @param {Told} told
 * @returns {Promise<Record<string, unknown>>}
 */
async function posted(task, role, what, body, kind, told) {
  const address = `${task[role]}/tasks/${task.digest}/${what}`;
  for (const pause of [...PAUSES, null]) {
    const answer = await fetch(address, {
      method: "POST",
      body,
      headers: { "content-type": kind },
      credentials: "omit",
      cache: "no-store",
      signal: AbortSignal.timeout(1000 * LONGEST),
    }).catch(() => null);
    /** @type {Record<string, unknown>} */
    const content = (await objectIn(answer)) ?? {};
    if (answer?.ok) return content;
    if (answer && !LATER.includes(answer.status)) throw refusal(role, answer, content);
    if (pause === null) break;
    told(`The ${NAMES[role]} does not answer; trying again in ${pause} s …`);
    await new Promise((resume) => setTimeout(resume, 1000 * pause));
  }
  throw new Problem(
    `The ${NAMES[role]}, ${hostOf(task[role])}, does not answer. Your report is ready: keep this` +
      " page open and send it again later. Sending it twice does not count twice.",
    "unreachable",
  );
}

/** @param {Response | null} answer */
async function objectIn(answer) {
  if (!answer) return null;
  try {
    return JSON.parse(new TextDecoder().decode(await bytesOf(answer, ANSWER)));
  } catch {
    return null;
  }
}

/** @type {Record<string, string>} */
const REASONS = {
  mismatch:
    "One of the two aggregators says that your report’s halves do not belong together, which an" +
    " honest one would not. Tell both operators, and make no other report: both could be counted.",
  replayed:
    "A report with other measurements was sent from this browser before, and has arrived in part." +
    " Choose the same file, and the same person in it, as then.",
  over: "This survey is over: no more reports are taken.",
  "invitation used":
    "This invitation was used already, perhaps in another browser. Whoever invited you can give" +
    " you another one.",
  "no invitation":
    "This code is no invitation to this survey. Check it, or ask whoever invited you.",
};

/**
 * @param {Role} role
 * @param {Response} answer
 * @param {Record<string, unknown>} content
 */
function refusal(role, answer, content) {
  const reason = String(content.reason ?? "");
  const said = content.error ?? `it answered ${answer.status}`;
  const line = REASONS[reason] ?? `The ${NAMES[role]} does not take the report: ${said}.`;
  return new Problem(line, reason);
}
