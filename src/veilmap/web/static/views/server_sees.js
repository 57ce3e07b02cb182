/** What the server sees: one user's upload under each kind of noise, and where attackers look. */

/** @import {Scheme, SeenHeader} from "../types.js" */
/** @import {Pack} from "../pack.js" */
/** @import {Context} from "../context.js" */
/** @import {Mark} from "../marks.js" */

import { getSeen } from "../api.js";
import { ramp } from "../colours.js";
import { flightOf, footprintsOf, section } from "../context.js";
import { choice, evenStops, roundStops, slider, toggle } from "../controls.js";
import { fill, h } from "../dom.js";
import { attackLook, TRUTH } from "../marks.js";
import { percentile } from "../numbers.js";
import { capital, sentence } from "../words.js";
import { attacksOf, attacksTable, markLegend, summary } from "./attack_results.js";
import { openOpenedSum } from "./opened_sum.js";

const NOISE = "noise";
const NOISE_PANE = { name: NOISE, title: "The aligned noise itself, σ" };
/** What stands there until the server says what there is. */
const FIRST_PANES = [
  { name: "no noise", title: "Gradient, no noise" },
  { name: "uniform", title: "With uniform noise" },
  { name: "aligned", title: "With geometry-aligned noise" },
  NOISE_PANE,
];
const PENDING_PAUSE = 400;
const TOP = 0.995;
const AMOUNTS = [0, ...roundStops(0.1, 100)];
const POWERS = [...evenStops(1, 10, 0.5), Infinity];
const CLIPS = roundStops(0.1, 1000);
const USUAL = { mu: 50, rho: 1, nu: 2, clip: 1 };

/** @typedef {"mu" | "rho" | "nu" | "clip"} Dial */

/** @type {{dial: Dial, label: string, stops: number[], hint: string}[]} */
const DIALS = [
  {
    dial: "mu",
    label: "Noise budget, μ",
    stops: AMOUNTS,
    hint: "How much noise: more hides more and blurs the map.",
  },
  {
    dial: "rho",
    label: "Trade-off, ρ",
    stops: AMOUNTS,
    hint: "Shape of the aligned noise: low leans it away from the user, high spreads it evenly.",
  },
  {
    dial: "nu",
    label: "Attacker’s exponent, ν",
    stops: POWERS,
    hint: "How strongly the centroid attacker trusts the largest values; ∞ takes the peak.",
  },
  {
    dial: "clip",
    label: "Clipping, C",
    stops: CLIPS,
    hint: "The largest length of an upload; longer ones are shortened.",
  },
];

/** @param {Context} context */
export function openServerSees(context) {
  const { run, stage, panel } = context;
  if (run.survey) {
    openOpenedSum(context, run.survey);
    return;
  }
  const nobody = run.user_ids.length ? null : "Who this run’s users are is not known here.";
  const why_not = run.why_no_attacks ?? nobody;
  if (why_not === null) {
    new ServerSees(context);
    return;
  }
  stage.notice(
    h(
      "div",
      { class: "stack" },
      h("h2", {}, "Nothing to look at here"),
      h("p", {}, sentence(why_not)),
    ),
  );
  fill(panel, section("What is promised", h("p", {}, sentence(run.promise))));
}

class ServerSees {
  #context;
  #flight;
  #timer = 0;
  #summary = h("p", { class: "summary", testid: "summary", "aria-live": "polite" });
  #legend = h("div");
  #above = h("div", {}, this.#summary, this.#legend);
  #table = h("div");
  #notes = h("p", { class: "hint" });
  #findings = h("section", { class: "findings" }, h("h2", {}, "What attackers find"), this.#table, this.#notes);

  /** @param {Context} context */
  constructor(context) {
    this.#context = context;
    this.#flight = flightOf(context, (signal) => this.#fetch(signal));
    const { stage, panel } = context;
    stage.arrange(FIRST_PANES, { above: this.#above, after: this.#findings });
    stage.notice("Computing what the server sees …", "loading");
    fill(panel, section("Whose upload", ...this.#who()), section("Noise", ...this.#dials()));
    this.#flight.ask();
  }

  #who() {
    const { run } = this.#context;
    const user = choice({
      label: "User",
      testid: "user",
      choices: run.user_ids.map((id) => ({ value: id, text: id })),
      value: this.#user,
      change: (id) => this.#change({ user: id }),
    });
    const round = choice({
      label: "Round",
      testid: "round",
      choices: run.kept.map((kept) => ({ value: String(kept), text: String(kept) })),
      value: String(this.#round),
      change: (kept) => this.#change({ round: Number(kept) }),
    });
    const sum = toggle({
      label: "The server sees only the sum",
      testid: "sum",
      on: this.#summed,
      hint: "Secure aggregation: uploads are added up before the server may open them.",
      change: (on) => this.#change({ sees: on ? "sums" : "uploads" }),
    });
    return [h("div", { class: "pair" }, user.element, round.element), sum.element];
  }

  #dials() {
    return DIALS.map(({ dial, label, stops, hint }) => {
      const change = (/** @type {number} */ value) => this.#change({ [dial]: value });
      return slider({ label, testid: dial, stops, value: this.#dial(dial), hint, change }).element;
    });
  }

  get #user() {
    const { user_ids } = this.#context.run;
    const { user } = this.#context.address.settings;
    return user_ids.includes(user) ? user : (user_ids[0] ?? "");
  }

  get #summed() {
    const { run, address } = this.#context;
    return (address.settings.sees || run.server_sees) !== "uploads";
  }

  get #round() {
    const { kept } = this.#context.run;
    const { round } = this.#context.address.settings;
    return round !== null && kept.includes(round) ? round : (kept[0] ?? 1);
  }

  /**
   * What the reader chose, or what the run was trained with.
   *
   * @param {Dial} dial
   */
  #dial(dial) {
    const { mechanism } = this.#context.run;
    const own = {
      mu: mechanism.noise_budget,
      rho: mechanism.tradeoff,
      nu: null,
      clip: mechanism.clip,
    }[dial];
    const chosen = this.#context.address.settings[dial];
    return chosen ?? (typeof own === "number" ? own : USUAL[dial]);
  }

  /** @param {Partial<import("../address.js").Settings>} changes */
  #change(changes) {
    this.#context.address.set(changes);
    this.#flight.ask();
  }

  #query() {
    const power = this.#dial("nu");
    return {
      user: this.#user,
      round: this.#round,
      noise_budget: this.#dial("mu"),
      tradeoff: this.#dial("rho"),
      power: power === Infinity ? "inf" : power,
      clip: this.#dial("clip"),
      sum: this.#summed,
    };
  }

  /** @param {AbortSignal} signal */
  async #fetch(signal) {
    const { run, stage } = this.#context;
    const [pack, footprints] = await Promise.all([
      getSeen(run.id, this.#query(), signal),
      footprintsOf(run, signal),
    ]);
    this.#paint(pack, footprints);
    this.#report(pack.header);
    stage.notice(null);
    clearTimeout(this.#timer);
    if (pack.header.pending.length)
      this.#timer = setTimeout(() => this.#flight.ask(), PENDING_PAUSE);
  }

  /**
   * Every pane has colours of its own: a bare gradient would be black in those of the noise.
   *
   * @param {Pack<SeenHeader>} pack
   * @param {Path2D | null} footprints
   */
  #paint({ header, arrays }, footprints) {
    const { stage } = this.#context;
    const { schemes, grid, how } = header;
    const panes = panesOf(schemes, arrays.has(NOISE));
    stage.arrange(panes, { above: this.#above, after: this.#findings });
    for (const { name } of panes) {
      const values = arrays.get(name);
      if (!values) continue;
      const isNoise = name === NOISE;
      const scheme = schemes.find((one) => one.name === (isNoise ? "aligned" : name));
      const palette = isNoise ? deviationsRamp(values) : uploadRamp(values);
      const marks = marksOf(scheme, header);
      stage.paint(name, { values, grid, how, palette }, { marks, footprints });
    }
  }

  /** @param {SeenHeader} header */
  #report(header) {
    this.#summary.textContent = summary(header);
    fill(this.#legend, markLegend(header));
    fill(this.#table, attacksOf(header).length > 0 && attacksTable(header));
    const waiting = header.pending.length ? [`Still preparing: ${header.pending.join(", ")}.`] : [];
    this.#notes.textContent = [...waiting, ...header.notes].join(" ");
  }
}

/** @param {Float32Array} values */
function uploadRamp(values) {
  const high = percentile([values], TOP, rootOfSize) || 1;
  return ramp({ scale: "cividis", low: 0, high, unit: "√|g|", show: rootOfSize });
}

/** @param {Float32Array} values */
function deviationsRamp(values) {
  return ramp({ scale: "inferno", low: 0, high: percentile([values], TOP) || 1, unit: "σ" });
}

/** @param {number} value */
function rootOfSize(value) {
  return Math.sqrt(Math.abs(value));
}

/**
 * The noise stands behind the upload that it protects, and what was really sent comes last.
 *
 * @param {Scheme[]} schemes
 * @param {boolean} noise
 */
function panesOf(schemes, noise) {
  const panes = schemes.map(({ name, title }) => ({ name: String(name), title: capital(title) }));
  const sent = panes.filter(({ name }) => name === "sent");
  const simulated = panes.filter(({ name }) => name !== "sent");
  return [...simulated, ...(noise ? [NOISE_PANE] : []), ...sent];
}

/**
 * @param {Scheme | undefined} scheme
 * @param {SeenHeader} header
 * @returns {Mark[]}
 */
function marksOf(scheme, { position, schemes }) {
  const attacks = schemes.flatMap(({ estimates }) => estimates.map(({ attack }) => attack));
  const estimates = scheme?.estimates ?? [];
  const marks = estimates.map(({ attack, x, y }) => ({
    x,
    y,
    look: attackLook(attack, attacks),
    size: 5.5,
  }));
  return position ? [...marks, { ...position, look: TRUTH, size: 10 }] : marks;
}
