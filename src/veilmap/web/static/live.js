/** Runs and jobs as the server knows them now. */

/** @import {JobInfo, Overview} from "./types.js" */

import { getJson, ServerGone } from "./api.js";

const WORKING = 1000;
const RESTING = 5000;

export class LiveState extends EventTarget {
  /** @type {Overview} */
  current = { version: "", runs: [], jobs: [], can_start: false };
  gone = false;
  #timer = 0;

  /** Asks now, and again from then on; tells listeners what is new by "change". */
  async refresh() {
    clearTimeout(this.#timer);
    const before = JSON.stringify([this.current, this.gone]);
    try {
      this.current = await getJson("/api/state");
      this.gone = false;
    } catch (problem) {
      this.gone = problem instanceof ServerGone;
    }
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.refresh(), this.#working() ? WORKING : RESTING);
    if (JSON.stringify([this.current, this.gone]) !== before)
      this.dispatchEvent(new Event("change"));
  }

  #working() {
    const { jobs, runs } = this.current;
    return jobs.some(underWay) || runs.some((run) => run.state === "running");
  }

  /**
   * The newest job of a kind on a run.
   *
   * @param {string} run
   * @param {JobInfo["kind"]} kind
   */
  job(run, kind) {
    return this.current.jobs.findLast((job) => job.run === run && job.kind === kind) ?? null;
  }
}

/** @param {JobInfo | null} job */
export function underWay(job) {
  return job?.state === "waiting" || job?.state === "running";
}

/**
 * How far a job is, in words.
 *
 * @param {JobInfo} job
 */
export function progressInWords({ state, share }) {
  if (state === "waiting") return "waiting for other work";
  return share === null ? "at work" : `${Math.round(100 * share)} % done`;
}
