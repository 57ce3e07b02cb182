/** What everybody agrees on before the survey: fetched from both aggregators, which must say the same. */

/** @import {Bytes} from "./bytes.js" */
/** @import {Proofs} from "./proofs.js" */

import { bytesOf, equal, sha256, toHex } from "./bytes.js";
import { Problem } from "./problem.js";

/** @typedef {"leader" | "helper"} Role */

/**
 * @typedef {object} Station
 * @property {string} id
 * @property {number} x
 * @property {number} y
 * @property {number} z
 * @property {number} level_db
 * @property {number} slope_db
 * @property {number | null} azimuth_deg
 * @property {number | null} beam_width_deg
 */

/**
 * @typedef {object} Survey
 * @property {string} id
 * @property {{cell_size: number, shape: [number, number], origin: [number, number],
 *   crs: string | null}} grid
 * @property {Station[]} stations
 * @property {number} participants
 * @property {number} epsilon
 * @property {number} delta
 * @property {number} range_db
 * @property {number} level_weight
 * @property {number} clip
 * @property {number} aggregators
 */

/** @typedef {{type: "ProofOfWork", bits: number} | {type: "Invitations", key: string}} Admission */

/**
 * @typedef {object} Published  what the task's file holds
 * @property {Survey} survey
 * @property {string} leader
 * @property {string} helper
 * @property {string} leader_key
 * @property {string} helper_key
 * @property {string} opens
 * @property {string} closes
 * @property {number} most_reports
 * @property {number} pairing_hours
 * @property {Admission} admission
 * @property {Proofs | null} proofs
 */

/** @typedef {Published & {digest: string, digestBytes: Bytes, numbers: number}} Task */

const SIZE = 10_000_000; // bytes of a task at most
const LONGEST = 60; // seconds for a task
const NUMBERS = 50_000_000; // of a contribution at most

/**
 * The task, if both aggregators publish the same bytes.
 *
 * @returns {Promise<Task>}
 */
export async function fetchTask() {
  const content = await bytesAt("", "This address");
  const task = parsed(content);
  if (task.leader !== location.origin) {
    throw new Problem(
      `This survey’s page is at ${task.leader}/take-part, not at ${location.origin}: open it there.`,
    );
  }
  const other = await bytesAt(task.helper, `The second aggregator, ${hostOf(task.helper)},`);
  if (!equal(content, other)) {
    throw new Problem(
      "The two aggregators do not publish the same survey, so nothing can be sent. Tell whoever" +
        " invited you.",
    );
  }
  const digestBytes = await sha256(content);
  const [rows, columns] = task.survey.grid.shape;
  const numbers = 2 * task.survey.stations.length * (rows * columns + 1);
  return { ...task, digestBytes, digest: toHex(digestBytes), numbers };
}

/**
 * @param {string} address
 */
export function hostOf(address) {
  return new URL(address).host;
}

/**
 * @param {string} origin
 * @param {string} who
 */
async function bytesAt(origin, who) {
  const signal = AbortSignal.timeout(1000 * LONGEST);
  const how = /** @type {RequestInit} */ ({ cache: "no-store", credentials: "omit", signal });
  const answer = await fetch(`${origin}/task`, how).catch(() => null);
  if (!answer?.ok) {
    throw new Problem(
      `${who} does not give out the survey’s task now. Check the connection, and try again later.`,
    );
  }
  const content = await bytesOf(answer, SIZE).catch(() => null);
  if (!content) throw new Problem(`${who} gives out more than a survey’s task, or stops halfway.`);
  return content;
}

/**
 * @param {Bytes} content
 * @returns {Published}
 */
function parsed(content) {
  try {
    const found = /** @type {Published} */ (JSON.parse(new TextDecoder().decode(content)));
    const { survey, admission } = found;
    const [rows, columns] = survey.grid.shape;
    const known = admission.type === "ProofOfWork" || admission.type === "Invitations";
    const size = 2 * survey.stations.length * (rows * columns + 1);
    const times = [found.opens, found.closes].map((time) => Date.parse(time));
    const { proofs } = found;
    const proven = proofs === null || (proofs.dimension === size && proofs.bound === survey.clip);
    const sound = known && proven && size > 0 && size <= NUMBERS && times.every(Number.isFinite);
    if (sound && survey.aggregators === 2 && new URL(found.helper).origin === found.helper) {
      return found;
    }
  } catch {
    // the same as a task that this page does not know
  }
  throw new Problem(
    "What this address gives out is no survey that this page knows. Tell whoever invited you.",
  );
}
