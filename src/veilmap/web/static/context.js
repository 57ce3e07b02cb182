/** What a view is given, and what all views do with it. */

/** @import {RunDetail} from "./types.js" */
/** @import {Address, Settings} from "./address.js" */
/** @import {LiveState} from "./live.js" */
/** @import {Stage} from "./stage.js" */

import { getJson, inWords, runPath, ServerGone } from "./api.js";
import { h } from "./dom.js";
import { Flight } from "./flight.js";
import { footprints } from "./map_drawing.js";
import { sentence } from "./words.js";

/**
 * @typedef {object} Context
 * @property {RunDetail} run
 * @property {Stage} stage
 * @property {HTMLElement} panel
 * @property {Address} address
 * @property {LiveState} live
 * @property {AbortSignal} signal  aborted when the view is left
 * @property {() => void} reopen  asks for the run again and shows it anew
 * @property {(changes: Partial<Settings>) => void} go  to another run or view
 */

/** @type {Map<string, Path2D>} */
const known = new Map();

/**
 * A view's requests, which tell the stage that they are under way and what went wrong.
 *
 * @param {Context} context
 * @param {(signal: AbortSignal) => Promise<void>} task
 */
export function flightOf({ stage, live, signal, reopen }, task) {
  return new Flight(task, signal, {
    busy: (busy) => stage.busy(busy),
    fail: (problem) => {
      if (problem instanceof ServerGone)
        void live.refresh(); // a banner says so above the map
      else stage.notice(problemCard(problem, reopen));
    },
  });
}

/**
 * @param {unknown} problem
 * @param {() => void} retry
 */
export function problemCard(problem, retry) {
  return h(
    "div",
    { class: "stack" },
    h("p", {}, sentence(inWords(problem))),
    h("p", { class: "hint" }, "Choose something else, or try again."),
    h("button", { type: "button", onclick: retry }, "Try again"),
  );
}

/**
 * Outlines of buildings, where the run has any.
 *
 * @param {RunDetail} run
 * @param {AbortSignal} signal
 */
export async function footprintsOf({ id, has_buildings }, signal) {
  if (!has_buildings) return null;
  const before = known.get(id);
  if (before) return before;
  /** @type {{polygons: [number, number][][]}} */
  const { polygons } = await getJson(runPath(id, "buildings"), signal);
  const path = footprints(polygons);
  known.set(id, path);
  return path;
}

/**
 * A part of a panel under a heading.
 *
 * @param {string} title
 * @param {...import("./dom.js").Child} children
 */
export function section(title, ...children) {
  return h("section", { class: "stack" }, h("h2", {}, title), ...children);
}

/**
 * Sentences that the reader should know; nothing where there are none.
 *
 * @param {string[]} notes
 */
export function noteList(notes) {
  return h("ul", { class: "notes" }, ...notes.map((note) => h("li", {}, note)));
}
