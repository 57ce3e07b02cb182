/** Axes for charts, drawn by hand in SVG at the size that the page gives them. */

import { fill, svg } from "./dom.js";
import { logTicks, short, ticks } from "./numbers.js";

/**
 * @typedef {object} Axis
 * @property {string} label
 * @property {[number, number]} range
 * @property {boolean} log
 */

/**
 * @typedef {object} Plot
 * @property {SVGGElement} group  where data go
 * @property {(x: number) => number} x  pixels of a value
 * @property {(y: number) => number} y
 * @property {{left: number, top: number, width: number, height: number}} box
 */

/**
 * Draws axes into a chart and hands back where data go.
 *
 * @param {SVGSVGElement} chart
 * @param {Axis} across
 * @param {Axis} up
 * @returns {Plot}
 */
export function drawPlot(chart, across, up) {
  const { width: whole, height: tall } = chart.getBoundingClientRect();
  const upTicks = ticksOf(up, tall / 45);
  const widest = Math.max(...upTicks.map((tick) => short(tick).length), 2);
  const box = { left: 14 + widest * 6.6, top: 22, width: 0, height: 0 };
  box.width = Math.max(10, whole - box.left - 12);
  box.height = Math.max(10, tall - box.top - 36);
  const x = toPixels(across, box.left, box.left + box.width);
  const y = toPixels(up, box.top + box.height, box.top);
  const group = svg("g");
  fill(
    chart,
    ...upTicks.map((tick) => upTick(box, y(tick), short(tick))),
    ...ticksOf(across, box.width / 95).map((tick) => acrossTick(box, x(tick), short(tick))),
    svg("path", { class: "axis", d: frame(box) }),
    svg("text", { class: "axis-label", x: 2, y: 12 }, up.label),
    svg(
      "text",
      { class: "axis-label", x: box.left + box.width, y: tall - 3, "text-anchor": "end" },
      across.label,
    ),
    group,
  );
  return { group, x, y, box };
}

/**
 * A range around values, a little wider than they are.
 *
 * @param {number[]} values
 * @param {{log?: boolean, zero?: boolean, margin?: number}} [how]
 * @returns {[number, number]}
 */
export function around(values, { log = false, zero = false, margin = 0.05 } = {}) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  if (log) {
    const factor = Math.max(1.2, (most / least) ** margin);
    return [least / factor, most * factor];
  }
  const low = zero && least >= 0 ? 0 : least;
  const room = (most - low) * margin || Math.abs(most) * 0.1 || 1;
  return [low === 0 ? 0 : low - room, most + room];
}

/**
 * @param {Axis} axis
 * @param {number} count
 */
function ticksOf({ range: [low, high], log }, count) {
  return log ? logTicks(low, high) : ticks(low, high, count);
}

/**
 * @param {Axis} axis
 * @param {number} from
 * @param {number} to
 */
function toPixels({ range, log }, from, to) {
  const bend = log ? Math.log : (/** @type {number} */ value) => value;
  const [low, high] = [bend(range[0]), bend(range[1])];
  return (/** @type {number} */ value) =>
    from + ((bend(value) - low) / (high - low || 1)) * (to - from);
}

/**
 * @param {Plot["box"]} box
 * @param {number} y
 * @param {string} text
 */
function upTick({ left, width }, y, text) {
  return svg(
    "g",
    { class: "tick" },
    svg("line", { x1: left, x2: left + width, y1: y, y2: y }),
    svg("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, text),
  );
}

/**
 * @param {Plot["box"]} box
 * @param {number} x
 * @param {string} text
 */
function acrossTick({ top, height }, x, text) {
  const bottom = top + height;
  return svg(
    "g",
    { class: "tick" },
    svg("line", { x1: x, x2: x, y1: bottom, y2: bottom + 4 }),
    svg("text", { x, y: bottom + 16, "text-anchor": "middle" }, text),
  );
}

/** @param {Plot["box"]} box */
function frame({ left, top, width, height }) {
  return `M${left} ${top}V${top + height}H${left + width}`;
}
