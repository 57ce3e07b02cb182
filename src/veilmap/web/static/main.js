/** Joins the parts: which run and view are open, and what opens them. */

/** @import {RunDetail} from "./types.js" */
/** @import {Context} from "./context.js" */

import { Address } from "./address.js";
import { getJson, isAbort, runPath } from "./api.js";
import { problemCard } from "./context.js";
import { setChoices } from "./controls.js";
import { byId, fill, h } from "./dom.js";
import { LiveState } from "./live.js";
import { newRunDialog } from "./new_run.js";
import { isBegun, notBegunCard } from "./not_begun.js";
import { Stage } from "./stage.js";
import { tabs } from "./tabs.js";
import { themeSwitch } from "./theme.js";
import { openRadioMap } from "./views/radio_map.js";
import { openServerSees } from "./views/server_sees.js";
import { openTradeoff } from "./views/tradeoff.js";
import { openTraining } from "./views/training.js";

/** @type {Record<string, (context: Context) => void>} */
const VIEWS = {
  map: openRadioMap,
  training: openTraining,
  sees: openServerSees,
  tradeoff: openTradeoff,
};

const stage = new Stage(byId("stage", HTMLElement), byId("announcer", HTMLElement));
const panel = byId("panel", HTMLElement);
const runs = byId("run", HTMLSelectElement);
const banner = byId("banner", HTMLElement);
const study = byId("study", HTMLElement);
const begin = byId("new-run", HTMLButtonElement);
const live = new LiveState();
const address = new Address(() => void open());
const viewTabs = tabs(byId("tabs", HTMLElement), (view) => go({ view }));
const dialog = newRunDialog(byId("new-run-dialog", HTMLDialogElement), async (run) => {
  await live.refresh();
  go({ run: run.id, view: "training" });
});

let opened = new AbortController();
/** The run that is shown, and its state when it was opened. */
let shown = { id: "", state: "" };

function chosenRun() {
  return address.settings.run || (live.current.runs[0]?.id ?? "");
}

/** @param {string} id */
function summaryOf(id) {
  return live.current.runs.find((run) => run.id === id);
}

/**
 * What makes the view stale when it changes; training follows its run by itself.
 *
 * @param {string} id
 */
function stateOf(id) {
  const run = summaryOf(id);
  const followed = address.settings.view === "training" && isBegun(run);
  return followed ? "followed" : `${run?.state}, ${isBegun(run)}`;
}

/** @param {Partial<import("./address.js").Settings>} changes */
function go(changes) {
  address.go(changes);
  void open();
}

/** Leaves the view that is open, and opens the one that the address tells of. */
async function open() {
  opened.abort();
  opened = new AbortController();
  const { signal } = opened;
  const id = chosenRun();
  shown = { id, state: stateOf(id) };
  const view = address.settings.view in VIEWS ? address.settings.view : "map";
  viewTabs.select(view);
  byId("view", HTMLElement).setAttribute("aria-labelledby", `tab-${view}`);
  if (!id) {
    showEmpty();
    return;
  }
  runs.value = id;
  const planned = summaryOf(id);
  if (planned && !isBegun(planned)) {
    clear();
    stage.notice(notBegunCard(planned, () => live.refresh()));
    return;
  }
  stage.notice("Loading …", "loading");
  stage.busy(true);
  try {
    /** @type {RunDetail} */
    const run = await getJson(runPath(id), signal);
    stage.clear();
    stage.setGrid(run.grid);
    study.textContent = run.study ?? "";
    study.hidden = run.study === null;
    VIEWS[view]?.({ run, stage, panel, address, live, signal, reopen: () => void open(), go });
    document.title = `veilmap: ${run.name}`;
  } catch (problem) {
    if (!isAbort(problem)) fail(problem);
  } finally {
    stage.busy(false);
  }
}

/** @param {unknown} problem */
function fail(problem) {
  clear();
  stage.notice(problemCard(problem, () => void retry()));
}

function clear() {
  study.hidden = true;
  stage.clear();
  fill(panel);
}

function showEmpty() {
  clear();
  if (live.gone) return;
  stage.notice(
    h(
      "div",
      { class: "stack" },
      h("h2", {}, "No run yet"),
      h(
        "p",
        {},
        "Start one, or run ",
        h("code", {}, "veilmap train --keep-uploads all"),
        " in this folder.",
      ),
      live.current.can_start &&
        h("button", { type: "button", class: "main", onclick: askForRun }, "New run"),
    ),
  );
}

function askForRun() {
  void dialog.open(live.current.runs);
}

/** The server's list of runs has changed, or the server has gone or come back. */
function follow() {
  const { runs: list, can_start } = live.current;
  const choices = list.map(({ id, name, label, state }) => ({
    value: id,
    text: `${name} · ${label}${state === "finished" ? "" : ` · ${state}`}`,
  }));
  setChoices(runs, choices, chosenRun());
  runs.disabled = !list.length;
  begin.disabled = !can_start;
  const back = !banner.hidden && !live.gone;
  banner.hidden = !live.gone;
  if (back || shown.id !== chosenRun() || shown.state !== stateOf(shown.id)) void open();
}

async function retry() {
  await live.refresh();
  await open();
}

async function start() {
  await live.refresh();
  if (!shown.id) await open();
}

themeSwitch(byId("theme", HTMLSelectElement), () => stage.redraw());
byId("skip", HTMLAnchorElement).addEventListener("click", (event) => {
  event.preventDefault(); // the part after "#" keeps settings
  byId("stage", HTMLElement).focus();
});
runs.addEventListener("change", () => go({ run: runs.value }));
begin.addEventListener("click", askForRun);
byId("retry", HTMLButtonElement).addEventListener("click", () => void retry());
live.addEventListener("change", follow);
void start();
