/** A run before its first round: there is no map of it yet, only what is planned. */

/** @import {RunSummary} from "./types.js" */

import { post, runPath } from "./api.js";
import { action } from "./controls.js";
import { h } from "./dom.js";
import { sentence } from "./words.js";

/** @type {Partial<Record<RunSummary["state"], string>>} */
const WORDS = {
  waiting: "It waits until other work is done.",
  running: "It is being prepared; its map appears with the first round.",
  paused: "It was paused before its first round.",
  stopped: "It was stopped before its first round.",
};

/** @param {RunSummary | undefined} run */
export function isBegun(run) {
  return !run || run.played > 0 || run.state === "finished" || run.state === "unreadable";
}

/**
 * @param {RunSummary} run
 * @param {() => Promise<void>} refresh
 */
export function notBegunCard({ id, name, label, state, problem }, refresh) {
  const going = state === "waiting" || state === "running";
  const send = (/** @type {string} */ what) => async () => {
    await post(runPath(id, what));
    await refresh();
  };
  return h(
    "div",
    { class: "stack" },
    h("h2", {}, `${name}: ${label}`),
    h("p", {}, problem ? sentence(problem) : (WORDS[state] ?? "")),
    going && action("Stop", send("stop"), { testid: "stop" }),
    (state === "paused" || state === "stopped") &&
      action("Go on", send("resume"), { testid: "pause" }),
  );
}
