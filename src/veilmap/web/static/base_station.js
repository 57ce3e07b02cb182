/** Which base station the radio map is of: a known one, or one that the reader has placed. */

/** @import {RunDetail, Station} from "./types.js" */
/** @import {Settings} from "./address.js" */
/** @import {Mark} from "./marks.js" */

import { CHOSEN, STATION } from "./marks.js";

const USUAL_HEIGHT = 25;
const MOST_LABELS = 12;
const MOST_TRIANGLES = 40;
const MOST_SMALL = 500;

/** The id of one that the reader has placed. */
export const PLACED = "";

/**
 * @param {Settings} settings
 * @param {RunDetail} run
 * @returns {Station}
 */
export function chosenStation({ station, x, y, z }, { stations, grid }) {
  const known = stations.find(({ id }) => id === station);
  if (known) return known;
  if (
    x !== null &&
    y !== null &&
    x >= grid.west &&
    x <= grid.east &&
    y >= grid.south &&
    y <= grid.north
  ) {
    return { id: PLACED, x, y, z: z ?? USUAL_HEIGHT, error_m: null };
  }
  const middle = { x: (grid.west + grid.east) / 2, y: (grid.south + grid.north) / 2 };
  const away = (/** @type {Station} */ one) => Math.hypot(one.x - middle.x, one.y - middle.y);
  const central = [...stations].sort((a, b) => away(a) - away(b))[0];
  return central ?? { id: PLACED, ...middle, z: z ?? USUAL_HEIGHT, error_m: null };
}

/**
 * What the address keeps of it.
 *
 * @param {Station} station
 * @returns {Partial<Settings>}
 */
export function inAddress({ id, x, y, z }) {
  if (id !== PLACED) return { station: id, x: null, y: null, z: null };
  return { station: "", x: Number(x.toFixed(2)), y: Number(y.toFixed(2)), z };
}

/**
 * What a request for its layer says of it.
 *
 * @param {Station} station
 */
export function inQuery({ id, x, y, z }) {
  return id === PLACED ? { x, y, z } : { station: id };
}

/**
 * The name of a base station, and how far off its place may be where that is an estimate.
 *
 * @param {Station} station
 */
function labelOf({ id, error_m }) {
  return error_m ? `${id} (± ${Math.round(error_m)} m)` : id;
}

/**
 * @param {Station[]} stations
 * @param {Station | null} chosen  drawn last, so that it lies on top
 * @returns {Mark[]}
 */
export function stationMarks(stations, chosen) {
  const named = stations.length <= MOST_LABELS;
  const grows = stations.length > MOST_SMALL;
  const size = stations.length <= MOST_TRIANGLES ? 5 : grows ? 1.2 : 2.5;
  const others = stations
    .filter(({ id }) => id !== chosen?.id)
    .map((one) => ({
      ...{ id: one.id, x: one.x, y: one.y, look: STATION, size, grows },
      ...(named && { label: labelOf(one) }),
    }));
  if (!chosen) return others;
  const label = chosen.id === PLACED ? "new" : labelOf(chosen);
  const { id, x, y } = chosen;
  return [...others, { id, x, y, look: CHOSEN, size: 9, label, draggable: true }];
}
