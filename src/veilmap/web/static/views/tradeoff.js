/** The trade-off: how good each run's map is, and how close the strongest attack comes. */

/** @import {JobInfo, RunDetail, Tradeoff as Answer} from "../types.js" */
/** @import {Context} from "../context.js" */

import { getJson, post, runPath } from "../api.js";
import { flightOf, section } from "../context.js";
import { action } from "../controls.js";
import { fill, h } from "../dom.js";
import { progressInWords, underWay } from "../live.js";
import { familyLegend, Scatter } from "../scatter.js";
import { fixed, metres } from "../numbers.js";
import { table } from "../table.js";
import { unseen, usualSet } from "./usual_set.js";

/** @param {Context} context */
export function openTradeoff(context) {
  new Tradeoff(context);
}

class Tradeoff {
  /** @type {Answer} */
  #answer = { points: [], missing: [] };
  #context;
  #flight;
  #scatter;
  #table = h("div");
  #words = h("div", { class: "stack" });
  #legend = h("div");
  #missing = h("div", { class: "stack" });
  #finished = "";

  /** @param {Context} context */
  constructor(context) {
    this.#context = context;
    this.#scatter = new Scatter((run) => this.#open(run));
    this.#flight = flightOf(context, (signal) => this.#fetch(signal));
    const { stage, panel, live, signal } = context;
    const chart = h(
      "div",
      { class: "stack tradeoff" },
      this.#scatter.element,
      this.#legend,
      this.#words,
      this.#table,
    );
    stage.arrange([], { beside: chart });
    fill(
      panel,
      section(
        "How to read it",
        h(
          "p",
          {},
          "Up is safer, left is a better map. Each mark is a run; open one to see what its server saw.",
        ),
      ),
      section("Runs without an attack", this.#missing),
      section("More runs", ...this.#more()),
    );
    live.addEventListener("change", () => this.#follow(), { signal });
    this.#flight.ask();
  }

  #more() {
    const { live, run } = this.#context;
    const train = async () => {
      const labels = live.current.runs.map(({ label }) => label);
      for (const wish of unseen(usualSet(run), labels)) await post("/api/runs", wish);
      await live.refresh();
    };
    const hint = run.survey
      ? "Choose a run: the folder of a survey has no measurements to train others on."
      : "Without noise, uniform and aligned noise with μ = 1, 10 and 50, and sums with ε = 8," +
        " on the measurements of this run. Those that are there already are left out.";
    return [
      h("p", { class: "hint" }, hint),
      action("Train the usual set", train, {
        disabled: !live.current.can_start || run.survey !== null,
        testid: "usual-set",
      }),
    ];
  }

  /** @param {string} run */
  async #open(run) {
    /** @type {RunDetail} */
    const { why_no_attacks } = await getJson(runPath(run), this.#context.signal);
    this.#context.go({ run, view: why_no_attacks === null ? "sees" : "map" });
  }

  /** @param {AbortSignal} signal */
  async #fetch(signal) {
    this.#answer = await getJson("/api/tradeoff", signal);
    this.#context.stage.notice(null);
    this.#scatter.show(this.#answer.points);
    fill(this.#legend, familyLegend(this.#answer.points));
    fill(this.#words, ...this.#verdicts());
    fill(this.#table, this.#answer.points.length > 0 && this.#numbers());
    this.#showMissing();
    document.documentElement.dataset.ready = "true";
  }

  /** What every audit comes to: what is found, what is promised, and what to change. */
  #verdicts() {
    return this.#answer.points.map((point) =>
      h(
        "article",
        { class: "verdict", testid: `verdict-${point.run}` },
        h("h3", {}, point.study ? `${point.study}: ${point.label}` : point.label),
        ...point.verdict.map((line) => h("p", {}, line)),
      ),
    );
  }

  /** Another audit has ended, or a run: the chart has something new to show. */
  #follow() {
    const { runs, jobs } = this.#context.live.current;
    const finished = JSON.stringify([
      runs.map(({ id, state }) => [id, state]),
      jobs.filter((job) => !underWay(job)).map(({ id }) => id),
    ]);
    if (finished === this.#finished) this.#showMissing();
    else this.#flight.ask();
    this.#finished = finished;
  }

  #showMissing() {
    const { missing } = this.#answer;
    const { live } = this.#context;
    const idle = missing.filter(
      ({ run, why_not }) => why_not === null && !underWay(live.job(run, "audit")),
    );
    const attack = async (/** @type {string[]} */ runs) => {
      for (const run of runs) await post(runPath(run, "audit"));
      await live.refresh();
    };
    const items = missing.map(({ run, label, why_not }) => {
      const job = live.job(run, "audit");
      const status = why_not ?? (job ? jobInWords(job) : null);
      return h(
        "li",
        {},
        h("span", {}, `${label} (${run})`),
        status && h("span", { class: "hint" }, status),
        idle.some((one) => one.run === run) && action("Attack it", () => attack([run])),
      );
    });
    fill(
      this.#missing,
      missing.length
        ? h("ul", { class: "missing-runs" }, ...items)
        : h("p", {}, "Every run has been attacked."),
      idle.length > 1 && action("Attack all", () => attack(idle.map(({ run }) => run))),
    );
  }

  #numbers() {
    const rows = this.#answer.points.map((point) => [
      h(
        "button",
        { type: "button", class: "link", onclick: () => this.#open(point.run) },
        `${point.label} (${point.run})`,
      ),
      point.mae_db === null ? "–" : `${fixed(point.mae_db, 2)} dB`,
      point.attack,
      point.knows,
      `${metres(point.median)} (${metres(point.low)} to ${metres(point.high)})`,
      `${fixed(100 * point.near, 0)} %`,
      metres(point.prior),
    ]);
    return table({
      caption: "The same numbers; intervals hold 95 %",
      head: [
        "Run",
        "Map MAE",
        "Strongest attack",
        "Given",
        "Median error",
        "Within 50 m",
        "Guessing",
      ],
      rows,
    });
  }
}

/** @param {JobInfo} job */
function jobInWords(job) {
  if (underWay(job)) return `Attack: ${progressInWords(job)}`;
  return job.state === "failed" ? (job.problem ?? "the attack failed") : null;
}
