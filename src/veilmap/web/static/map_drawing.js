/** Draws what belongs on a map, each thing by itself, into a frame of the shared viewport. */

/** @import {Bounds, Box, Point, Viewport} from "./viewport.js" */
/** @import {Mark} from "./marks.js" */
/** @import {Palette} from "./colours.js" */
/** @import {GridInfo} from "./types.js" */

import { drawShape, sizeOf } from "./marks.js";
import { roundDown, ticks } from "./numbers.js";

/**
 * @typedef {object} Frame
 * @property {CanvasRenderingContext2D} context
 * @property {Viewport} viewport
 * @property {Box} box  the map without its axes
 * @property {string} ink
 * @property {string} ground
 */

export const FONT = "11px system-ui, sans-serif";
const TICK = 4;
/** Pixels a metre below which outlines of houses would hide the map. */
const FAR = 0.3;

/**
 * Values as an image with one pixel for each cell, north up; no value stays clear.
 *
 * @param {Float32Array} values  southern row first
 * @param {GridInfo} grid
 * @param {Palette} palette
 */
export function cellImage(values, { rows, columns }, palette) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [columns, rows];
  const image = new ImageData(columns, rows);
  for (let row = 0; row < rows; row += 1) {
    for (let column = 0; column < columns; column += 1) {
      const value = values[row * columns + column] ?? Number.NaN;
      if (Number.isNaN(value)) continue;
      const [red, green, blue] = palette.table[palette.step(value)] ?? [0, 0, 0];
      const at = 4 * ((rows - 1 - row) * columns + column);
      image.data[at] = red;
      image.data[at + 1] = green;
      image.data[at + 2] = blue;
      image.data[at + 3] = 255;
    }
  }
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  return canvas;
}

/**
 * The map's cells; what lies outside the map is shaded, so that it differs from no value.
 *
 * @param {Frame} frame
 * @param {HTMLCanvasElement | null} image
 * @param {Bounds} bounds  of the image: large cells may reach beyond the map
 */
export function drawCells({ context, viewport, box, ink, ground }, image, bounds) {
  const [x, y, width, height] = rectangle(viewport, box, viewport.bounds);
  context.globalAlpha = 0.06;
  context.fillStyle = ink;
  context.fillRect(box.left, box.top, box.width, box.height);
  context.globalAlpha = 1;
  context.fillStyle = ground;
  context.fillRect(x, y, width, height);
  if (!image) return;
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.imageSmoothingEnabled = false;
  context.drawImage(image, ...rectangle(viewport, box, bounds));
  context.restore();
}

/**
 * Left, top, width and height on the screen.
 *
 * @param {Viewport} viewport
 * @param {Box} box
 * @param {Bounds} bounds
 * @returns {[number, number, number, number]}
 */
function rectangle(viewport, box, { west, east, south, north }) {
  const from = viewport.toScreen({ x: west, y: north }, box);
  const to = viewport.toScreen({ x: east, y: south }, box);
  return [from.x, from.y, to.x - from.x, to.y - from.y];
}

/**
 * Footprints as one path in metres, to be made once for each run.
 *
 * @param {[number, number][][]} polygons
 */
export function footprints(polygons) {
  const path = new Path2D();
  for (const polygon of polygons) {
    polygon.forEach(([x, y], i) => (i ? path.lineTo(x, y) : path.moveTo(x, y)));
    path.closePath();
  }
  return path;
}

/**
 * @param {Frame} frame
 * @param {Path2D} path
 */
export function drawFootprints({ context, viewport, box }, path) {
  const scale = viewport.scale(box);
  const zero = viewport.toScreen({ x: 0, y: 0 }, box);
  const onScreen = new Path2D();
  onScreen.addPath(path, new DOMMatrix([scale, 0, 0, -scale, zero.x, zero.y]));
  context.lineJoin = "round";
  const far = scale < FAR;
  if (!far) {
    context.strokeStyle = "rgb(255 255 255 / 55%)";
    context.lineWidth = 2.2;
    context.stroke(onScreen);
  }
  context.strokeStyle = far ? "rgb(0 0 0 / 35%)" : "rgb(0 0 0 / 70%)";
  context.lineWidth = far ? 0.5 : 0.9;
  context.stroke(onScreen);
}

/**
 * @param {Frame} frame
 * @param {Mark[]} marks
 */
export function drawMarks(frame, marks) {
  const { context, viewport, box } = frame;
  for (const mark of marks) {
    const { look, label } = mark;
    const [at, size] = [viewport.toScreen(mark, box), sizeOf(mark, viewport.zoom)];
    drawShape(context, look, at.x, at.y, size);
    if (label) haloText(frame, label, at.x + size + 5, at.y + 4);
  }
}

/**
 * Lines through the place that is read out.
 *
 * @param {Frame} frame
 * @param {Point} place
 */
export function drawCrosshair({ context, viewport, box }, place) {
  const at = viewport.toScreen(place, box);
  const path = new Path2D();
  path.rect(at.x, box.top, 0, box.height);
  path.rect(box.left, at.y, box.width, 0);
  context.strokeStyle = "rgb(0 0 0 / 55%)";
  context.lineWidth = 2;
  context.stroke(path);
  context.strokeStyle = "rgb(255 255 255 / 90%)";
  context.lineWidth = 1;
  context.stroke(path);
}

/**
 * How much the left axis needs for its widest number.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {Viewport} viewport
 */
export function axisWidth(context, { bounds }) {
  context.font = FONT;
  const widths = [bounds.south, bounds.north].map(
    (value) => context.measureText(String(Math.round(value))).width,
  );
  return Math.ceil(Math.max(20, ...widths) + TICK + 6);
}

/** @param {Frame} frame */
export function drawAxes({ context, viewport, box, ink }) {
  const from = viewport.toMap({ x: box.left, y: box.top + box.height }, box);
  const to = viewport.toMap({ x: box.left + box.width, y: box.top }, box);
  context.font = FONT;
  context.fillStyle = context.strokeStyle = ink;
  context.lineWidth = 1;
  context.strokeRect(box.left - 0.5, box.top - 0.5, box.width + 1, box.height + 1);
  const widest = context.measureText(String(Math.round(to.x))).width + 24;
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const x of ticks(from.x, to.x, box.width / Math.max(55, widest))) {
    const at = viewport.toScreen({ x, y: 0 }, box).x;
    const bottom = box.top + box.height;
    context.fillRect(at - 0.5, bottom, 1, TICK);
    const text = tickText(x);
    const room = context.measureText(text).width / 2;
    context.fillText(text, Math.min(at, box.left + box.width - room), bottom + TICK + 3);
  }
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const y of ticks(from.y, to.y, box.height / 55)) {
    const at = viewport.toScreen({ x: 0, y }, box).y;
    context.fillRect(box.left - TICK, at - 0.5, TICK, 1);
    context.fillText(tickText(y), box.left - TICK - 3, Math.max(at, box.top + 5));
  }
}

/** @param {number} metres */
function tickText(metres) {
  return String(Number(metres.toFixed(2))).replace("-", "−");
}

/** @param {Frame} frame */
export function drawScaleBar(frame) {
  const { context, viewport, box, ink, ground } = frame;
  const scale = viewport.scale(box);
  const metres = roundDown((box.width * 0.22) / scale);
  const length = metres * scale;
  const label = metres >= 1000 ? `${metres / 1000} km` : `${metres} m`;
  const [right, bottom] = [box.left + box.width - 8, box.top + box.height - 8];
  context.globalAlpha = 0.82;
  context.fillStyle = ground;
  context.fillRect(right - length - 8, bottom - 21, length + 12, 25);
  context.globalAlpha = 1;
  context.fillStyle = ink;
  context.fillRect(right - length - 2, bottom - 2, length, 2);
  context.fillRect(right - length - 2, bottom - 6, 1.5, 6);
  context.fillRect(right - 3.5, bottom - 6, 1.5, 6);
  context.font = FONT;
  context.textAlign = "center";
  context.textBaseline = "alphabetic";
  context.fillText(label, right - length / 2 - 2, bottom - 8);
}

/**
 * @param {Frame} frame
 * @param {string} text
 * @param {number} x
 * @param {number} y
 */
function haloText({ context, ink, ground }, text, x, y) {
  context.font = `600 ${FONT}`;
  context.textAlign = "left";
  context.textBaseline = "alphabetic";
  context.lineJoin = "round";
  context.lineWidth = 3.5;
  context.strokeStyle = ground;
  context.strokeText(text, x, y);
  context.fillStyle = ink;
  context.fillText(text, x, y);
}
