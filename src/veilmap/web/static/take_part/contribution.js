/**
 * What one participant adds to a survey's sum: a short vector of whole numbers.
 *
 * The same numbers as veilmap.surveys.contribution gives: the same operations on the same doubles,
 * in the same order.
 */

/** @import {Station, Survey} from "./task.js" */

import { losses } from "./antennas.js";

/**
 * Readings of one person, column by column.
 *
 * @typedef {object} Readings
 * @property {Float64Array} x  in metres of the survey's coordinate system
 * @property {Float64Array} y
 * @property {string[]} bs
 * @property {Float64Array} gain  in dB
 */

/** @typedef {"used" | "outside" | "unknown" | "unusable"} Fate */

/**
 * @typedef {object} Contribution
 * @property {Int32Array} vector
 * @property {Fate[]} fates  of the readings
 * @property {Int32Array} stations  the number of each reading's base station, or −1
 */

export const ANGLES = 256;
export const UNIT = 2 ** 14;
const LEVEL_RANGES = 4; // how many times the residual range a station's level is told in
const NEAREST = 10; // metres; nearer links count as so long
const REFERENCE = 100; // metres; where a station's nominal level applies
const RECEIVER_HEIGHT = 1.5; // metres above ground
const STRONGEST = 1000; // dB, either way
const SAFE = 1 - 2 ** -30;
const TINY = 1e-300;
const CORNERS = /** @type {const} */ ([
  [0, 0],
  [0, 1],
  [1, 0],
  [1, 1],
]); // (north, east) of a point among four centres

/** (cos, sin) of 2πk/256 in units of 2⁻¹⁴, towards zero, so that no pair is longer than UNIT. */
export const CIRCLE = Array.from({ length: ANGLES }, (_, k) => {
  const turn = (2 * Math.PI * k) / ANGLES;
  return /** @type {[number, number]} */ ([towardsZero(Math.cos(turn)), towardsZero(Math.sin(turn))]);
});

/** @param {number} part */
function towardsZero(part) {
  return Math.trunc(Number((UNIT * part).toFixed(6)));
}

/**
 * @param {Survey} survey
 * @param {Readings} readings
 * @returns {Contribution}
 */
export function contribution(survey, readings) {
  const numberOf = new Map(survey.stations.map((station, i) => [station.id, i]));
  const stations = Int32Array.from(readings.bs, (id) => numberOf.get(id) ?? -1);
  const fates = readings.bs.map((_, i) => fate(survey, readings, stations[i] ?? -1, i));
  const points = survey.grid.shape[0] * survey.grid.shape[1];
  const fine = new Groups(survey.stations.length * points);
  const level = new Groups(survey.stations.length);
  const looks = survey.stations.map((station) => losses(station));
  fates.forEach((own, i) => {
    if (own !== "used") return;
    const [x, y, s] = [readings.x[i] ?? 0, readings.y[i] ?? 0, stations[i] ?? 0];
    const station = /** @type {Station} */ (survey.stations[s]);
    // r = gain − nominal gain
    const residual = (readings.gain[i] ?? 0) - nominal(station, x, y, looks[s]?.(x, y) ?? 0);
    for (const [cell, share] of betweenCentres(survey.grid, x, y)) {
      fine.add(s * points + cell, share, residual);
    }
    level.add(s, 1, residual);
  });
  return { vector: written(survey, points, fine, level), fates, stations };
}

/**
 * What becomes of a reading; the first reason counts.
 *
 * @param {Survey} survey
 * @param {Readings} readings
 * @param {number} station
 * @param {number} i
 * @returns {Fate}
 */
function fate({ grid }, readings, station, i) {
  const [x, y, gain] = [readings.x[i] ?? NaN, readings.y[i] ?? NaN, readings.gain[i] ?? NaN];
  const finite = Number.isFinite(x) && Number.isFinite(y) && Math.abs(gain) <= STRONGEST;
  if (!finite) return "unusable";
  const { west, east, south, north } = extent(grid);
  if (!(x >= west && x <= east && y >= south && y <= north)) return "outside";
  return station < 0 ? "unknown" : "used";
}

/**
 * The area in metres.
 *
 * @param {Survey["grid"]} grid
 */
export function extent({ cell_size: size, shape: [rows, columns], origin: [x, y] }) {
  return { west: x, east: x + columns * size, south: y, north: y + rows * size };
}

/**
 * The gain that the design expects between a station and a place, in dB.
 *
 * @param {Station} station
 * @param {number} x
 * @param {number} y
 * @param {number} pattern  what the antenna takes off there
 */
function nominal(station, x, y, pattern) {
  const [east, north, above] = [x - station.x, y - station.y, station.z - RECEIVER_HEIGHT];
  const squared = east * east + north * north + above * above;
  const far = Math.log10(Math.sqrt(Math.max(squared, NEAREST * NEAREST)) / REFERENCE);
  return station.level_db + station.slope_db * far + pattern;
}

/**
 * Bilinear interpolation: the four cells around a point and their shares. Beyond the outermost
 * centres a point counts as on the line that joins them.
 *
 * @param {Survey["grid"]} grid
 * @param {number} x
 * @param {number} y
 * @returns {[number, number][]}
 */
export function betweenCentres({ cell_size: size, shape: [rows, columns], origin }, x, y) {
  const along = (/** @type {number} */ at, /** @type {number} */ from, /** @type {number} */ count) => {
    const place = Math.min(Math.max((at - from) / size - 0.5, 0), count - 1);
    const low = Math.min(Math.floor(place), Math.max(count - 2, 0));
    return { low, part: place - low };
  };
  const column = along(x, origin[0], columns);
  const row = along(y, origin[1], rows);
  return CORNERS.map(([north, east]) => {
    const cell =
      Math.min(row.low + north, rows - 1) * columns + Math.min(column.low + east, columns - 1);
    const alongY = north ? row.part : 1 - row.part;
    return [cell, alongY * (east ? column.part : 1 - column.part)];
  });
}

/** Readings gathered by key: of each the largest share, and the mean residual weighted by shares. */
class Groups {
  /** @param {number} keys */
  constructor(keys) {
    this.most = new Float64Array(keys);
    this.sums = new Float64Array(keys);
    this.shares = new Float64Array(keys);
  }

  /**
   * @param {number} key
   * @param {number} share  without one, a reading does not count there
   * @param {number} residual
   */
  add(key, share, residual) {
    if (!(share > 0)) return;
    this.most[key] = Math.max(this.most[key] ?? 0, share);
    this.sums[key] = (this.sums[key] ?? 0) + share * residual;
    this.shares[key] = (this.shares[key] ?? 0) + share;
  }

  /**
   * One entry for each key that has readings, in order of keys.
   *
   * @param {number} from  place of the first key
   * @param {number} weight
   * @param {number} range  in dB
   */
  entries(from, weight, range) {
    /** @type {Entry[]} */
    const found = [];
    this.most.forEach((most, key) => {
      if (!(most > 0)) return;
      const mean = (this.sums[key] ?? 0) / (this.shares[key] ?? 1);
      found.push({ place: from + key, weight: weight * most, angle: angleOf(mean, range) });
    });
    return found;
  }
}

/** @typedef {{place: number, weight: number, angle: number}} Entry */

/**
 * The residual as one of 256 angles, the nearest.
 *
 * @param {number} residual
 * @param {number} range
 */
function angleOf(residual, range) {
  const turns = residual / range;
  return Math.floor((turns - Math.floor(turns)) * ANGLES + 0.5) % ANGLES;
}

/**
 * Entries m (cos, sin), scaled to the length C − √d/2 and rounded, as a vector.
 *
 * @param {Survey} survey
 * @param {number} points
 * @param {Groups} fine
 * @param {Groups} level
 */
function written(survey, points, fine, level) {
  const stations = survey.stations.length;
  const entries = [
    ...fine.entries(0, 1, survey.range_db),
    ...level.entries(stations * points, survey.level_weight, LEVEL_RANGES * survey.range_db),
  ];
  const length = Math.sqrt(entries.reduce((sum, { weight }) => sum + weight * weight, 0));
  // Rounding d numbers adds at most √d / 2 to a vector's length.
  const bound = Math.max(survey.clip - Math.sqrt(2 * entries.length) / 2, 0) * SAFE;
  const vector = new Int32Array(2 * stations * (points + 1));
  for (const { place, weight, angle } of entries) {
    const scale = (bound / Math.max(length, TINY)) * weight;
    const [cos, sin] = CIRCLE[angle] ?? [0, 0];
    vector[2 * place] = Math.floor((scale * cos) / UNIT + 0.5);
    vector[2 * place + 1] = Math.floor((scale * sin) / UNIT + 0.5);
  }
  return vector;
}
