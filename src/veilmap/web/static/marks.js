/** Shapes that mark places, the same on maps, charts and in legends. */

import { CATEGORIES } from "./colours.js";
import { svg } from "./dom.js";

/** Outlines in a box from −1 to 1. */
const OUTLINES = {
  circle: "M1 0A1 1 0 1 1 -1 0A1 1 0 1 1 1 0Z",
  square: "M-.85-.85H.85V.85H-.85Z",
  diamond: "M0-1.15L1.15 0L0 1.15L-1.15 0Z",
  up: "M0-1.1L1.05.8H-1.05Z",
  down: "M0 1.1L1.05-.8H-1.05Z",
  plus: "M-.35-1.1H.35V-.35H1.1V.35H.35V1.1H-.35V.35H-1.1V-.35H-.35Z",
  cross:
    "M0-.45L.65-1.1L1.1-.65L.45 0L1.1.65L.65 1.1L0 .45L-.65 1.1L-1.1.65L-.45 0L-1.1-.65L-.65-1.1Z",
  star: "M0-1.25L.31-.42L1.19-.39L.5.16L.73 1.01L0 .52L-.73 1.01L-.5.16L-1.19-.39L-.31-.42Z",
  hexagon: "M1.05 0L.53.91H-.53L-1.05 0L-.53-.91H.53Z",
};

/** @typedef {keyof typeof OUTLINES} Shape */
/** @typedef {{shape: Shape, colour: string, hollow?: boolean}} Look */

/**
 * A place on a map.
 *
 * @typedef {object} Mark
 * @property {number} x
 * @property {number} y
 * @property {Look} look
 * @property {number} [size]  half its width in pixels
 * @property {boolean} [grows]  with the zoom: one of very many, which are tiny on the whole map
 * @property {string} [label]
 * @property {string} [id]  for those that can be chosen
 * @property {boolean} [draggable]
 */

const MOST_GROWN = 4;

/**
 * Half the width of a mark in pixels.
 *
 * @param {Mark} mark
 * @param {number} zoom
 */
export function sizeOf({ size = 6, grows = false }, zoom) {
  return grows ? size * Math.min(MOST_GROWN, Math.max(1, zoom)) : size;
}

/** @type {Shape[]} */
const ORDER = ["up", "square", "diamond", "cross", "plus", "down", "star", "hexagon"];

/**
 * How names of attacks begin: each looks the same in every run and view.
 *
 * @type {string[]}
 */
const ATTACKS = [
  "centroid",
  "matched filter",
  "gradient inversion",
  "plane inversion",
  "plane subtraction",
  "differencing",
  "posterior",
  "prior only",
  "joint inversion",
  "theta inversion",
];

/** @type {Look} */
export const TRUTH = { shape: "circle", colour: "none", hollow: true };
/** @type {Look} */
export const STATION = { shape: "up", colour: "#56b4e9" };
/** @type {Look} */
export const CHOSEN = { shape: "star", colour: "#e69f00" };

/**
 * The look of the n-th of several things.
 *
 * @param {number} index
 * @returns {Look}
 */
export function lookOf(index) {
  const shape = ORDER[index % ORDER.length] ?? "square";
  return { shape, colour: CATEGORIES[(index + 1) % CATEGORIES.length] ?? "#999999" };
}

/**
 * @param {string} attack
 * @param {string[]} others  all attacks of the moment, for those that have no look of their own
 */
export function attackLook(attack, others) {
  const known = ATTACKS.findIndex((name) => attack.startsWith(name));
  return lookOf(known >= 0 ? known : ATTACKS.length + others.indexOf(attack));
}

/**
 * Draws a shape with a light and a dark rim, which stands out from any colour scale.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {Look} look
 * @param {number} x
 * @param {number} y
 * @param {number} size
 */
export function drawShape(context, { shape, colour, hollow }, x, y, size) {
  const path = new Path2D();
  path.addPath(new Path2D(OUTLINES[shape]), new DOMMatrix([size, 0, 0, size, x, y]));
  context.lineJoin = "round";
  const rim = Math.min(2, size / 2.5);
  context.lineWidth = hollow ? 5 : 2 * rim;
  context.strokeStyle = "#000000";
  context.stroke(path);
  context.lineWidth = hollow ? 2.5 : rim;
  context.strokeStyle = "#ffffff";
  context.stroke(path);
  if (hollow) return;
  context.fillStyle = colour;
  context.fill(path);
}

/**
 * The same shape in a chart.
 *
 * @param {Look} look
 * @param {number} x
 * @param {number} y
 * @param {number} size
 */
export function svgShape({ shape, colour, hollow }, x, y, size) {
  const transform = `translate(${x} ${y}) scale(${size})`;
  const kind = hollow ? "shape hollow" : "shape";
  return svg("path", { d: OUTLINES[shape], transform, fill: colour, class: kind });
}

/**
 * The same shape beside a word.
 *
 * @param {Look} look
 */
export function shapeIcon(look) {
  const box = {
    viewBox: "-8 -8 16 16",
    width: 16,
    height: 16,
    class: "icon",
    "aria-hidden": "true",
  };
  return svg("svg", box, svgShape(look, 0, 0, 5.5));
}
