/** Areas of a map that belong to things: how large they are, and colours that keep them apart. */

/** @import {GridInfo} from "./types.js" */

/**
 * Things by the number of their cells, the largest first.
 *
 * @param {Float32Array} values  numbers of things; NaN where there is none
 * @returns {number[]}
 */
export function bySize(values) {
  /** @type {Map<number, number>} */
  const cells = new Map();
  for (const value of values) {
    if (!Number.isNaN(value)) cells.set(value, (cells.get(value) ?? 0) + 1);
  }
  return [...cells].sort((a, b) => b[1] - a[1]).map(([thing]) => thing);
}

/**
 * Few colours for many things: things that touch get different ones as long as there are enough.
 *
 * @param {Float32Array} values
 * @param {GridInfo} grid
 * @param {number} colours
 * @returns {Map<number, number>}
 */
export function colouring(values, grid, colours) {
  const touching = neighbours(values, grid);
  /** @type {Map<number, number>} */
  const chosen = new Map();
  const order = bySize(values);
  for (const [rank, thing] of order.entries()) {
    const taken = new Set([...(touching.get(thing) ?? [])].map((other) => chosen.get(other)));
    const wishes = Array.from({ length: colours }, (_, i) => (rank + i) % colours);
    chosen.set(thing, wishes.find((colour) => !taken.has(colour)) ?? rank % colours);
  }
  return chosen;
}

/**
 * @param {Float32Array} values
 * @param {GridInfo} grid
 */
function neighbours(values, { rows, columns }) {
  /** @type {Map<number, Set<number>>} */
  const touching = new Map();
  const meet = (/** @type {number} */ a, /** @type {number} */ b) => {
    if (a === b || Number.isNaN(a) || Number.isNaN(b)) return;
    touching.set(a, (touching.get(a) ?? new Set()).add(b));
    touching.set(b, (touching.get(b) ?? new Set()).add(a));
  };
  for (let row = 0; row < rows; row += 1) {
    for (let column = 0; column < columns; column += 1) {
      const here = values[row * columns + column] ?? Number.NaN;
      if (column + 1 < columns) meet(here, values[row * columns + column + 1] ?? Number.NaN);
      if (row + 1 < rows) meet(here, values[(row + 1) * columns + column] ?? Number.NaN);
    }
  }
  return touching;
}
