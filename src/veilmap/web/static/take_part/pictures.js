/** Draws where readings were taken, and the numbers that leave. */

/** @import {Contribution, Readings} from "./contribution.js" */
/** @import {Look, Mark} from "../marks.js" */
/** @import {Frame} from "../map_drawing.js" */
/** @import {Survey} from "./task.js" */

import { drawMarks, drawScaleBar } from "../map_drawing.js";
import { STATION } from "../marks.js";
import { Viewport } from "../viewport.js";
import { extent } from "./contribution.js";
import { PRIME } from "./shares.js";

const EDGE = 14; // pixels around the area, for marks at its edge
const TALLEST = 440;
const LOWEST = 170;
const LABELLED = 12; // base stations at most
const SHAPED = 3000; // readings at most; more are drawn as points
const MOST_CELLS = 1_000_000;

/** @type {Look} */
export const USED = { shape: "circle", colour: "#e69f00" };
/** @type {Look} */
export const NOT_USED = { shape: "cross", colour: "#999999" };

/**
 * The area with its base stations and the readings in it.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {Survey} survey
 * @param {Readings} readings
 * @param {Contribution} own
 */
export function drawMap(canvas, survey, readings, own) {
  const bounds = extent(survey.grid);
  const width = canvas.clientWidth;
  const ratio = (bounds.north - bounds.south) / (bounds.east - bounds.west);
  const height = Math.round(Math.min(TALLEST, Math.max(LOWEST, (width - 2 * EDGE) * ratio + 2 * EDGE)));
  const { context, ink, ground } = sized(canvas, width, height);
  const viewport = new Viewport();
  viewport.setBounds(bounds);
  const box = { left: EDGE, top: EDGE, width: width - 2 * EDGE, height: height - 2 * EDGE };
  const frame = { context, viewport, box, ink, ground };
  drawArea(frame);
  drawReadings(frame, readings, own);
  drawMarks(frame, stationMarks(survey));
  drawScaleBar(frame);
}

/**
 * A canvas with as many pixels as the screen has there.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 */
function sized(canvas, width, height) {
  canvas.width = width * devicePixelRatio;
  canvas.height = height * devicePixelRatio;
  canvas.style.height = `${height}px`;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.scale(devicePixelRatio, devicePixelRatio);
  const style = getComputedStyle(canvas);
  return { context, ink: style.color, ground: style.backgroundColor };
}

/** @param {Frame} frame */
function drawArea({ context, viewport, box, ink }) {
  const { west, east, south, north } = viewport.bounds;
  const from = viewport.toScreen({ x: west, y: north }, box);
  const to = viewport.toScreen({ x: east, y: south }, box);
  context.strokeStyle = context.fillStyle = ink;
  context.globalAlpha = 0.05;
  context.fillRect(from.x, from.y, to.x - from.x, to.y - from.y);
  context.globalAlpha = 0.5;
  context.setLineDash([5, 4]);
  context.strokeRect(from.x, from.y, to.x - from.x, to.y - from.y);
  context.setLineDash([]);
  context.globalAlpha = 1;
}

/**
 * @param {Frame} frame
 * @param {Readings} readings
 * @param {Contribution} own
 */
function drawReadings(frame, { x, y }, { fates }) {
  const marks = fates.flatMap((fate, i) => {
    const inside = fate === "used" || fate === "unknown";
    const look = fate === "used" ? USED : NOT_USED;
    return inside ? [{ x: x[i] ?? 0, y: y[i] ?? 0, look, size: 4 }] : [];
  });
  // Those that count lie on top.
  marks.sort((a, b) => Number(a.look === USED) - Number(b.look === USED));
  if (marks.length <= SHAPED) {
    drawMarks(frame, marks);
    return;
  }
  for (const mark of marks) {
    const at = frame.viewport.toScreen(mark, frame.box);
    frame.context.fillStyle = mark.look.colour;
    frame.context.fillRect(at.x - 1, at.y - 1, 2, 2);
  }
}

/**
 * Base stations in and around the area; those far away are not on the map.
 *
 * @param {Survey} survey
 * @returns {Mark[]}
 */
function stationMarks({ grid, stations }) {
  const { west, east, south, north } = extent(grid);
  const near = stations.filter(({ x, y }) => x >= west && x <= east && y >= south && y <= north);
  const labelled = near.length <= LABELLED;
  return near.map(({ x, y, id }) => ({ x, y, look: STATION, size: 7, ...(labelled && { label: id }) }));
}

/**
 * How many columns and rows show so many numbers; all pictures of a report have the same.
 *
 * @param {number} count
 */
function layout(count) {
  const cells = Math.min(MOST_CELLS, count);
  const columns = Math.ceil(Math.sqrt(2.2 * cells));
  return { cells, columns, rows: Math.ceil(cells / columns) };
}

/**
 * Elements of a share, one cell each, from black for 0 to white for q − 1.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {Uint32Array} elements
 */
export function drawElements(canvas, elements) {
  const { cells, columns, rows } = layout(elements.length);
  const image = new ImageData(columns, rows);
  for (let i = 0; i < cells; i += 1) {
    const grey = Math.floor((256 * (elements[i] ?? 0)) / PRIME);
    image.data.set([grey, grey, grey, 255], 4 * i);
  }
  shown(canvas, image);
}

/**
 * The numbers of a contribution in the same cells: orange above 0, purple below, and clear for 0.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {Int32Array} vector
 */
export function drawVector(canvas, vector) {
  const { cells, columns, rows } = layout(vector.length);
  const image = new ImageData(columns, rows);
  const largest = vector.reduce((most, value) => Math.max(most, Math.abs(value)), 1);
  const reach = Math.floor(columns / 160); // single pixels among very many would not be seen
  for (let i = 0; i < cells; i += 1) {
    const value = vector[i] ?? 0;
    if (value === 0) continue;
    const colour = value > 0 ? [217, 123, 18] : [129, 101, 194];
    const strength = Math.round(255 * (0.35 + (0.65 * Math.abs(value)) / largest));
    const [column, row] = [i % columns, Math.floor(i / columns)];
    for (let y = Math.max(0, row - reach); y <= Math.min(rows - 1, row + reach); y += 1) {
      for (let x = Math.max(0, column - reach); x <= Math.min(columns - 1, column + reach); x += 1) {
        image.data.set([...colour, strength], 4 * (y * columns + x));
      }
    }
  }
  shown(canvas, image);
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {ImageData} image
 */
function shown(canvas, image) {
  [canvas.width, canvas.height] = [image.width, image.height];
  canvas.getContext("2d")?.putImageData(image, 0, 0);
}
