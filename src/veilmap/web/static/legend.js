/** Says what the colours of a pane mean. */

/** @import {Palette} from "./colours.js" */

import { FONT } from "./map_drawing.js";
import { short, ticks } from "./numbers.js";

const BAR = 9;
export const LEGEND_HEIGHT = 30;

/**
 * @typedef {object} Sheet
 * @property {CanvasRenderingContext2D} context
 * @property {number} left
 * @property {number} width
 * @property {string} ink
 */

/**
 * @param {Sheet} sheet
 * @param {Palette} palette
 */
export function drawLegend(sheet, palette) {
  sheet.context.font = FONT;
  if (palette.legend.kind === "ramp") drawRamp(sheet, palette, palette.legend);
  else drawNames(sheet, palette, palette.legend.things);
}

/**
 * The same in words, for those who cannot see it.
 *
 * @param {Palette} palette
 */
export function legendInWords({ legend }) {
  if (legend.kind === "categories") return `Colours keep ${legend.things.length} areas apart`;
  return `Colours from ${short(legend.low)} to ${short(legend.high)} ${legend.unit}`;
}

/**
 * @param {Sheet} sheet
 * @param {Palette} palette
 * @param {{low: number, high: number, unit: string}} legend
 */
function drawRamp({ context, left, width, ink }, { table }, { low, high, unit }) {
  const unitWidth = unit ? context.measureText(unit).width + 8 : 0;
  const length = Math.max(40, width - unitWidth);
  table.forEach(([red, green, blue], i) => {
    context.fillStyle = `rgb(${red} ${green} ${blue})`;
    context.fillRect(left + (i / table.length) * length, 2, length / table.length + 0.7, BAR);
  });
  context.fillStyle = context.strokeStyle = ink;
  context.lineWidth = 1;
  context.strokeRect(left + 0.5, 1.5, length - 1, BAR + 1);
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.fillText(unit, left + length + 8, BAR / 2 + 3);
  context.textBaseline = "top";
  context.textAlign = "center";
  for (const tick of ticks(low, high, length / 60)) {
    const at = left + (high > low ? (tick - low) / (high - low) : 0.5) * length;
    const text = short(tick);
    const half = context.measureText(text).width / 2;
    context.fillRect(at - 0.5, BAR + 2, 1, 3);
    context.fillText(text, Math.max(left + half, Math.min(left + width - half, at)), BAR + 7);
  }
}

/**
 * @param {Sheet} sheet
 * @param {Palette} palette
 * @param {{name: string, step: number}[]} things
 */
function drawNames({ context, left, width, ink }, { table }, things) {
  context.textBaseline = "middle";
  context.textAlign = "left";
  let at = left;
  for (const { name, step } of things) {
    const needed = 14 + context.measureText(name).width + 12;
    if (at + needed > left + width) {
      context.fillStyle = ink;
      context.fillText("…", at, BAR);
      return;
    }
    const [red, green, blue] = table[step] ?? [0, 0, 0];
    context.fillStyle = `rgb(${red} ${green} ${blue})`;
    context.fillRect(at, BAR - 5, 10, 10);
    context.strokeStyle = context.fillStyle = ink;
    context.strokeRect(at + 0.5, BAR - 4.5, 9, 9);
    context.fillText(name, at + 14, BAR + 0.5);
    at += needed;
  }
}
