/** Training: how far a run is, how well its map fits, and the map as it grows. */

/** @import {RoundRow, Progress} from "../types.js" */
/** @import {Context} from "../context.js" */
/** @import {Sample} from "../curve.js" */

import { getLayer, post, runPath } from "../api.js";
import { ramp } from "../colours.js";
import { flightOf, footprintsOf, section } from "../context.js";
import { action } from "../controls.js";
import { Curve } from "../curve.js";
import { fill, h, throttled } from "../dom.js";
import { duration, short } from "../numbers.js";
import { table } from "../table.js";
import { sentence } from "../words.js";

const RECENT = 20;
const MAP_PAUSE = 2000;
const HEIGHTS = "heights";
/** @type {Progress["state"][]} */
const UNFINISHED = ["running", "waiting", "paused"];

/** @typedef {"loss" | "mae_db" | "noise_energy" | "epsilon"} Key */

/** @type {{key: Key, title: string, unit: string, missing: string}[]} */
const CURVES = [
  { key: "loss", title: "Loss", unit: "dB²", missing: "No loss is published of this run." },
  {
    key: "mae_db",
    title: "Map error (MAE)",
    unit: "dB",
    missing: "The map’s error is not known: there are no test users, or it is not published.",
  },
  {
    key: "noise_energy",
    title: "Noise energy",
    unit: "",
    missing: "This mechanism adds no noise.",
  },
  { key: "epsilon", title: "Privacy spent, ε", unit: "", missing: "This run promises no ε." },
];

/** @param {Context} context */
export function openTraining(context) {
  if (context.run.survey) showOneSum(context);
  else new Training(context);
}

/** @param {Context} context */
function showOneSum({ run, stage, panel }) {
  const line = "A survey has no rounds: everybody adds to one sum, which is opened once.";
  stage.notice(h("div", { class: "stack" }, h("h2", {}, "One sum"), h("p", {}, line)));
  fill(panel, section("What is promised", h("p", {}, sentence(run.promise))));
}

class Training {
  /** @type {Map<number, RoundRow>} */
  #rows = new Map();
  /** @type {Omit<Progress, "rows">} */
  #progress;
  #context;
  #flight;
  #refreshMap;
  #curves = CURVES.map((about) => new Curve(about));
  #bar = h("progress", { testid: "progress", "aria-label": "Rounds played" });
  #words = h("p", { class: "figures" });
  #buttons = h("div", { class: "buttons" });
  #table = h("details", {}, h("summary", {}, "As a table"));

  /** @param {Context} context */
  constructor(context) {
    const { run, stage, panel } = context;
    this.#context = context;
    this.#progress = run;
    this.#flight = flightOf(context, (signal) => this.#fetchMap(signal));
    this.#refreshMap = throttled(() => !context.signal.aborted && this.#flight.ask(), MAP_PAUSE);
    this.#table.addEventListener("toggle", () => this.#fillTable());
    const curves = h("div", { class: "curves" }, ...this.#curves.map((curve) => curve.element));
    stage.arrange([{ name: HEIGHTS, title: "Obstacles, learned so far" }], {
      beside: h("div", { class: "stack" }, curves, this.#table),
    });
    fill(
      panel,
      section("Progress", this.#bar, this.#words, this.#buttons),
      section("What is promised", h("p", {}, sentence(run.promise))),
      run.command && section("The same from the command line", ...commandLine(run.command)),
    );
    this.#showProgress();
    this.#flight.ask();
    this.#listen();
  }

  /** A browser that lost the connection is sent all rows again, so they are kept by round. */
  #listen() {
    const { run, signal } = this.#context;
    const source = new EventSource(runPath(run.id, "events"));
    signal.addEventListener("abort", () => source.close());
    source.addEventListener("progress", (event) => this.#take(JSON.parse(event.data)));
    source.addEventListener("end", (event) => {
      source.close();
      this.#take(JSON.parse(event.data));
      void this.#context.live.refresh();
    });
  }

  /** @param {Progress} progress */
  #take({ rows, ...progress }) {
    for (const row of rows) this.#rows.set(row.round, row);
    this.#progress = progress;
    this.#showProgress();
    if (rows.length) this.#refreshMap(undefined);
  }

  #showProgress() {
    const { state, played, rounds, problem } = this.#progress;
    const going = UNFINISHED.includes(state);
    this.#bar.max = rounds || 1;
    this.#bar.value = played;
    const left = state === "running" ? this.#timeLeft() : "";
    const how = `${state}: round ${played} of ${rounds}${left}`;
    this.#words.textContent = [how, problem ?? ""].map(sentence).join(" ");
    this.#showButtons(state);
    for (const [i, { key }] of CURVES.entries()) {
      const early = going && (!this.#rows.size || key === "mae_db");
      this.#curves[i]?.show(this.#samples(key), rounds, early);
    }
    if (this.#table.open) this.#fillTable();
  }

  #timeLeft() {
    const { played, rounds } = this.#progress;
    const recent = [...this.#rows.values()].slice(-RECENT).flatMap((row) => row.seconds ?? []);
    if (!recent.length) return "";
    const mean = recent.reduce((sum, seconds) => sum + seconds, 0) / recent.length;
    return `, about ${duration(mean * (rounds - played))} left`;
  }

  /**
   * @param {Key} key
   * @returns {Sample[]}
   */
  #samples(key) {
    return [...this.#rows.values()]
      .map((row) => ({ round: row.round + 1, value: row[key] ?? Number.NaN }))
      .filter(({ value }) => Number.isFinite(value));
  }

  /**
   * Buttons are made anew only when they change, so that they keep the focus.
   *
   * @param {Progress["state"]} state
   */
  #showButtons(state) {
    if (this.#buttons.dataset.state === state) return;
    this.#buttons.dataset.state = state;
    const going = state === "running" || state === "waiting";
    const halted = state === "paused" || state === "stopped";
    fill(
      this.#buttons,
      going && action("Pause", () => this.#send("pause"), { testid: "pause" }),
      halted && action("Go on", () => this.#send("resume"), { testid: "pause" }),
      (going || state === "paused") && action("Stop", () => this.#send("stop"), { testid: "stop" }),
    );
  }

  /** @param {"pause" | "resume" | "stop"} what */
  async #send(what) {
    const { run, live, reopen } = this.#context;
    await post(runPath(run.id, what));
    await live.refresh();
    if (what === "resume") reopen(); // the events of a stopped run have ended
  }

  /** @param {AbortSignal} signal */
  async #fetchMap(signal) {
    const { run, stage } = this.#context;
    const [{ header, arrays }, footprints] = await Promise.all([
      getLayer(run.id, { layer: HEIGHTS, of: "learned" }, signal),
      footprintsOf(run, signal),
    ]);
    const values = arrays.get("values");
    if (!values) return;
    const { low, high, unit, grid, how } = header;
    const palette = ramp({ scale: "cividis", low, high, unit });
    stage.paint(HEIGHTS, { values, grid, how, palette }, { footprints });
    stage.notice(null);
  }

  #fillTable() {
    if (!this.#table.open) return;
    const known = (/** @type {number | null} */ value) => (value === null ? "–" : short(value));
    const rows = [...this.#rows.values()].map((row) => [
      row.round + 1,
      ...CURVES.map(({ key }) => known(row[key])),
      row.clients,
      known(row.seconds),
    ]);
    const head = [
      "Round",
      ...CURVES.map(({ title, unit }) => (unit ? `${title}, ${unit}` : title)),
      "Users",
      "Seconds",
    ];
    fill(
      this.#table,
      h("summary", {}, "As a table"),
      table({ caption: "The run, round by round", head, rows }),
    );
  }
}

/** @param {string} command */
function commandLine(command) {
  const copy = action("Copy", async () => {
    await navigator.clipboard.writeText(command);
    const button = copy.querySelector("button");
    if (button) button.textContent = "Copied";
  });
  // Lines break between words only: browsers would also break after the first hyphen of "--seed".
  const words = command.split(" ").flatMap((word) => [h("span", { class: "word" }, word), " "]);
  return [h("pre", { class: "command", tabindex: 0 }, h("code", {}, ...words)), copy];
}
