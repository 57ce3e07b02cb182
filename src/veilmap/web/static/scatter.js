/** Runs as marks: the map's error across, the strongest attack's error up. */

/** @import {AuditedRun} from "./types.js" */
/** @import {Plot} from "./plot.js" */

import { h, svg } from "./dom.js";
import { lookOf, shapeIcon, svgShape } from "./marks.js";
import { fixed, metres } from "./numbers.js";
import { around, drawPlot } from "./plot.js";

const CAP = 4;

export class Scatter {
  element;
  /** @type {AuditedRun[]} */
  #points = [];
  #chart = svg("svg", {
    class: "chart scatter",
    testid: "tradeoff-chart",
    role: "group",
    "aria-label": "Map error against the strongest attack’s error",
  });
  #empty = h(
    "p",
    { class: "missing", hidden: true },
    "No run has been attacked yet. Attack one with the buttons of this view.",
  );
  #readout = h("output", { class: "readout" });
  #open;

  /** @param {(run: string) => void} open */
  constructor(open) {
    this.#open = open;
    this.element = h("figure", { class: "curve" }, this.#chart, this.#empty, this.#readout);
    new ResizeObserver(() => this.#draw()).observe(this.#chart);
  }

  /** @param {AuditedRun[]} points */
  show(points) {
    this.#points = points;
    this.#empty.hidden = points.length > 0;
    this.#chart.classList.toggle("empty", !this.#points.length);
    this.#draw();
  }

  #draw() {
    if (!this.#points.length || !this.#chart.clientWidth) return;
    const priors = this.#points.map((point) => point.prior);
    const known = this.#points.flatMap((point) => point.mae_db ?? []);
    const up = this.#points.flatMap(({ low, median, high }) =>
      [low, median, high].filter((value) => value > 0),
    );
    const plot = drawPlot(
      this.#chart,
      {
        label: "mean absolute error of the map, dB",
        range: known.length ? around(known, { margin: 0.15 }) : [0, 1],
        log: false,
      },
      {
        label: "median error of the strongest attack, m",
        range: around([...up, ...priors], { log: true }),
        log: true,
      },
    );
    plot.group.append(priorLine(plot, Math.max(...priors)));
    if (known.length < this.#points.length) plot.group.append(unmeasured(plot));
    const families = familiesOf(this.#points);
    for (const point of this.#points) plot.group.append(this.#mark(plot, point, families));
  }

  /**
   * @param {Plot} plot
   * @param {AuditedRun} point
   * @param {string[]} families
   */
  #mark({ x, y, box }, point, families) {
    const at = point.mae_db === null ? box.left + box.width : x(point.mae_db);
    const middle = y(point.median);
    const bottom = point.low > 0 ? y(point.low) : box.top + box.height;
    const top = y(point.high);
    const bar = `M${at} ${bottom}V${top}M${at - CAP} ${bottom}h${2 * CAP}M${at - CAP} ${top}h${2 * CAP}`;
    const words = inWords(point);
    const open = () => this.#open(point.run);
    const say = () => (this.#readout.textContent = words);
    const mark = svg(
      "g",
      {
        class: "point",
        tabindex: 0,
        role: "link",
        "aria-label": `${words}. Open this run`,
        onclick: open,
        onfocus: say,
        onpointerenter: say,
      },
      svg("circle", { class: "halo", cx: at, cy: middle, r: 13 }),
      svg("path", { class: "error-bar", d: bar }),
      svgShape(lookOf(families.indexOf(familyOf(point))), at, middle, 7),
    );
    mark.addEventListener("keydown", (event) => event.key === "Enter" && open());
    return mark;
  }
}

/**
 * @param {Plot} plot
 * @param {number} prior
 */
function priorLine({ y, box }, prior) {
  const at = y(prior);
  const right = box.left + box.width;
  return svg(
    "g",
    { class: "prior" },
    svg("line", { x1: box.left, x2: right, y1: at, y2: at }),
    svg("text", { x: box.left + 8, y: at - 6 }, `guessing without any upload: ${metres(prior)}`),
  );
}

/**
 * Runs whose map was not measured stand on the right edge.
 *
 * @param {Plot} plot
 */
function unmeasured({ box }) {
  const right = box.left + box.width;
  const bottom = box.top + box.height;
  return svg(
    "g",
    { class: "prior" },
    svg("line", { x1: right, x2: right, y1: box.top, y2: bottom }),
    svg("text", { x: right - 8, y: bottom - 8, "text-anchor": "end" }, "map not measured →"),
  );
}

/** @param {AuditedRun[]} points */
export function familyLegend(points) {
  const families = familiesOf(points);
  return h(
    "ul",
    { class: "marks" },
    ...families.map((family, i) => h("li", {}, shapeIcon(lookOf(i)), family)),
  );
}

/** @param {AuditedRun[]} points */
function familiesOf(points) {
  return [...new Set(points.map(familyOf))].sort();
}

/** @param {AuditedRun} point */
function familyOf({ label }) {
  return label.split(",")[0]?.trim() ?? label;
}

/** @param {AuditedRun} point */
function inWords({ label, mae_db, attack, median, low, high }) {
  const map = mae_db === null ? "map error not measured" : `map ${fixed(mae_db, 2)} dB`;
  return `${label}: ${map}; ${attack} ${metres(median)} (${metres(low)} to ${metres(high)})`;
}
