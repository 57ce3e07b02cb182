/** A curve over rounds: one dot to read it by pointer or arrow keys. */

import { h, svg } from "./dom.js";
import { short } from "./numbers.js";
import { around, drawPlot } from "./plot.js";

/** @typedef {{round: number, value: number}} Sample */

const LOG_FROM = 30;

export class Curve {
  element;
  /** @type {Sample[]} */
  #samples = [];
  /** @type {number | null} */
  #read = null;
  /** @type {(round: number) => number} */
  #across = () => 0;
  #rounds = 1;
  #missing = h("p", { class: "missing" });
  #readout = h("output", { class: "value" });
  #chart;

  /**
   * @param {{title: string, unit: string, missing: string}} about  "missing" says why there is none
   */
  constructor(about) {
    this.about = about;
    this.#chart = svg("svg", {
      class: "chart",
      tabindex: 0,
      role: "img",
      onpointermove: (/** @type {PointerEvent} */ event) => this.#pointAt(event.offsetX),
      onpointerleave: () => this.#choose(null),
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.#key(event),
      onblur: () => this.#choose(null),
    });
    this.element = h(
      "figure",
      { class: "curve" },
      h("figcaption", {}, h("span", {}, about.title), this.#readout),
      this.#chart,
      this.#missing,
    );
    new ResizeObserver(() => this.#draw()).observe(this.#chart);
  }

  /**
   * @param {Sample[]} samples
   * @param {number} rounds  asked for
   * @param {boolean} early  whether it is too early for a value
   */
  show(samples, rounds, early) {
    this.#samples = samples;
    this.#rounds = rounds;
    this.#missing.hidden = samples.length > 0;
    this.#missing.textContent = early ? "No value yet." : this.about.missing;
    this.#chart.classList.toggle("empty", !samples.length);
    this.#draw();
  }

  #draw() {
    const { title, unit } = this.about;
    const label = unit ? `${title}, ${unit}` : title;
    const last = this.#samples.at(-1);
    const words = last ? `${label}: ${short(last.value)} in round ${last.round}` : label;
    this.#chart.setAttribute("aria-label", `${words}. Arrow keys read single rounds.`);
    if (!this.#samples.length || !this.#chart.clientWidth) return;
    const values = this.#samples.map((sample) => sample.value);
    const log = Math.min(...values) > 0 && Math.max(...values) / Math.min(...values) > LOG_FROM;
    const across = {
      label: "round",
      range: /** @type {[number, number]} */ ([0, this.#rounds]),
      log: false,
    };
    const up = { label: unit, range: around(values, { log, zero: true }), log };
    const { group, x, y } = drawPlot(this.#chart, across, up);
    const points = this.#samples.map(({ round, value }) => `${x(round)} ${y(value)}`);
    group.append(svg("path", { class: "line", d: `M${points.join("L")}` }));
    const read = this.#samples[this.#read ?? this.#samples.length - 1];
    if (!read) return;
    group.append(svg("circle", { class: "dot", cx: x(read.round), cy: y(read.value), r: 4.5 }));
    this.#readout.textContent = `round ${read.round}: ${short(read.value)}${unit && ` ${unit}`}`;
    this.#across = x;
  }

  /** @param {number} pixel */
  #pointAt(pixel) {
    const distances = this.#samples.map(({ round }) => Math.abs(this.#across(round) - pixel));
    this.#choose(distances.indexOf(Math.min(...distances)));
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const last = this.#samples.length - 1;
    const now = this.#read ?? last;
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    this.#choose(Math.min(last, Math.max(0, next)));
  }

  /** @param {number | null} index */
  #choose(index) {
    this.#read = index;
    this.#draw();
  }
}
