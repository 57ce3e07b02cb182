/** Colour scales that colour-blind readers can tell apart, and the palettes of layers. */

/** @import {GridInfo} from "./types.js" */

import { bySize, colouring } from "./areas.js";
import { short } from "./numbers.js";

/** Stops at equal distances, from low to high. */
export const SCALES = {
  viridis: stops(
    "440154 48186a 472d7b 424086 3b528b 33638d 2c728e 26828e 21918c",
    "1fa088 28ae80 3fbc73 5ec962 84d44b addc30 d8e219 fde725",
  ),
  cividis: stops(
    "00224e 002e6a 1a386f 32436d 434e6c 535a6d 61656f 6f7073 7d7c78",
    "8c8878 9b9476 aba072 bcae6c cdbb63 dec958 f0d846 fee838",
  ),
  inferno: stops(
    "000004 0b0724 210c4a 3d0965 57106e 71196e 8a226a a32c61 bc3754",
    "d24644 e45a31 f1731d f98e09 fcac11 f9cb35 f2ea69 fcffa4",
  ),
  diverging: stops(
    "2d004b 451871 5f3a91 7b6aa8 9990bf b7b1d5 cfcfe5 e4e5f0 f7f7f6",
    "fce8cd fed59f fdbc6b ee9b39 d97b12 bd6109 9e4c07 7f3b08",
  ),
  grey: stops(
    "000000 131313 252525 3c3c3c 525252 636363 737373 858585 979797",
    "aaaaaa bebebe cccccc dadada e5e5e5 f0f0f0 f8f8f8 ffffff",
  ),
};

/** Okabe and Ito's colours, for things without an order. */
export const CATEGORIES = [
  "#0072b2",
  "#e69f00",
  "#009e73",
  "#cc79a7",
  "#56b4e9",
  "#000000",
  "#d55e00",
  "#999999",
];

const STEPS = 256;
/** @type {Rgb} */
const BLACK = [0, 0, 0];

/** @typedef {[number, number, number]} Rgb */
/** @typedef {keyof typeof SCALES} ScaleName */

/**
 * How values of a layer become colours and words.
 *
 * @typedef {object} Palette
 * @property {Rgb[]} table
 * @property {(value: number) => number} step  index into the table
 * @property {(value: number) => string} read
 * @property {Legend} legend
 */

/**
 * @typedef {{kind: "ramp", low: number, high: number, unit: string} |
 *   {kind: "categories", things: {name: string, step: number}[]}} Legend
 */

/**
 * A palette for numbers.
 *
 * @param {object} options
 * @param {ScaleName} options.scale
 * @param {number} options.low
 * @param {number} options.high
 * @param {string} options.unit
 * @param {(value: number) => number} [options.show]  what of a value is coloured
 * @returns {Palette}
 */
export function ramp({ scale, low, high, unit, show = (value) => value }) {
  const table = Array.from({ length: STEPS }, (_, i) => colourAt(SCALES[scale], i / (STEPS - 1)));
  const factor = high > low ? (STEPS - 1) / (high - low) : 0;
  return {
    table,
    step: (value) => {
      const step = Math.round((show(value) - low) * factor);
      return Math.min(STEPS - 1, Math.max(0, step));
    },
    read: (value) => `${short(show(value))}${unit && ` ${unit}`}`,
    legend: { kind: "ramp", low, high, unit },
  };
}

/**
 * A palette for numbers of things, for one layer of them.
 *
 * @param {string[]} names
 * @param {Float32Array} values
 * @param {GridInfo} grid
 * @returns {Palette}
 */
export function categories(names, values, grid) {
  const colours = colouring(values, grid, CATEGORIES.length);
  const nameOf = (/** @type {number} */ thing) => names[thing] ?? "none";
  return {
    table: CATEGORIES.map((colour) => hexToRgb(colour.slice(1))),
    step: (value) => colours.get(value) ?? 0,
    read: nameOf,
    legend: {
      kind: "categories",
      things: bySize(values).map((thing) => ({
        name: nameOf(thing),
        step: colours.get(thing) ?? 0,
      })),
    },
  };
}

/**
 * @param {Rgb[]} scale
 * @param {number} share
 * @returns {Rgb}
 */
function colourAt(scale, share) {
  const place = share * (scale.length - 1);
  const left = Math.min(scale.length - 2, Math.floor(place));
  const from = scale[left] ?? BLACK;
  const to = scale[left + 1] ?? BLACK;
  const weight = place - left;
  /** @param {0 | 1 | 2} channel */
  const mix = (channel) => Math.round(from[channel] + weight * (to[channel] - from[channel]));
  return [mix(0), mix(1), mix(2)];
}

/** @param {...string} lines */
function stops(...lines) {
  return lines.join(" ").split(" ").map(hexToRgb);
}

/**
 * @param {string} hex  such as "440154"
 * @returns {Rgb}
 */
function hexToRgb(hex) {
  const number = Number.parseInt(hex, 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}
