/**
 * Arithmetic modulo q = 2³² − 2²⁰ + 1 in numbers as browsers have them, which are exact below 2⁵³.
 *
 * The same as veilmap.collection.pine.field, as far as who proves something needs it.
 */

import { PRIME } from "./shares.js";

const ROOT = 3925978153; // of 1, of order 2²⁰
const ORDER = 2 ** 20;
const HALF = 2 ** 16;
const INVERSE = 1 / PRIME; // as a fraction, to guess quotients

/**
 * An element of an array that has one there.
 *
 * @param {ArrayLike<number>} array
 * @param {number} i
 */
export function at(array, i) {
  return /** @type {number} */ (array[i]);
}

/**
 * A whole number of less than 2⁵⁰ in magnitude, modulo q.
 *
 * @param {number} whole
 */
export function residue(whole) {
  // The guess is off by one at most, and both products are exact.
  const rest = whole - Math.floor(whole * INVERSE) * PRIME;
  if (rest < 0) return rest + PRIME;
  return rest < PRIME ? rest : rest - PRIME;
}

/**
 * a · b: a (2¹⁶ h + l) in two steps, each of less than 2⁴⁹.
 *
 * @param {number} a
 * @param {number} b
 */
export function multiplied(a, b) {
  const low = b % HALF;
  return residue(residue((a * (b - low)) / HALF) * HALF + a * low);
}

/**
 * @param {number} base
 * @param {number} exponent
 */
export function power(base, exponent) {
  let [result, square] = [1, base];
  for (let left = exponent; left > 0; left = Math.floor(left / 2)) {
    if (left % 2 === 1) result = multiplied(result, square);
    square = multiplied(square, square);
  }
  return result;
}

/**
 * A root of 1 of an order that is a power of 2.
 *
 * @param {number} order
 */
function rootOfUnity(order) {
  return power(ROOT, ORDER / order);
}

/**
 * In place: entry k becomes Σ_j row_j root^(jk), for a root of order row.length, a power of 2.
 *
 * @param {Float64Array} row
 * @param {number} root
 */
function transform(row, root) {
  const n = row.length;
  for (let k = 1, reverse = 0; k < n; k += 1) {
    let bit = n >> 1;
    for (; reverse & bit; bit >>= 1) reverse ^= bit;
    reverse |= bit;
    if (k < reverse) [row[k], row[reverse]] = [at(row, reverse), at(row, k)];
  }
  for (let half = 1; half < n; half *= 2) {
    const step = power(root, n / (2 * half));
    for (let j = 0, turn = 1; j < half; j += 1, turn = multiplied(turn, step)) {
      for (let k = j; k < n; k += 2 * half) {
        const [low, high] = [at(row, k), multiplied(at(row, k + half), turn)];
        row[k] = residue(low + high);
        row[k + half] = residue(low - high);
      }
    }
  }
}

/**
 * Coefficients of Σ f g over pairs of polynomials of degree below `size`, which are told by their
 * values at the roots of 1 of that order.
 *
 * @param {number} size
 * @param {Iterable<[Float64Array, Float64Array]>} pairs
 */
export function productSum(size, pairs) {
  const wide = rootOfUnity(2 * size);
  const back = power(multiplied(wide, wide), size - 1);
  const total = new Float64Array(2 * size);
  for (const [f, g] of pairs) {
    const first = evaluatedTwice(f, back, wide);
    const second = f === g ? first : evaluatedTwice(g, back, wide);
    for (let k = 0; k < 2 * size; k += 1) {
      total[k] = residue(at(total, k) + multiplied(at(first, k), at(second, k)));
    }
  }
  transform(total, power(wide, 2 * size - 1));
  // Every interpolation lacks its 1 / size, and this one 1 / (2 size).
  const scale = power(multiplied(multiplied(size, size), 2 * size), PRIME - 2);
  return total.slice(0, 2 * size - 1).map((value) => multiplied(value, scale));
}

/**
 * Values at twice as many roots of 1, times their number before.
 *
 * @param {Float64Array} values
 * @param {number} back
 * @param {number} wide
 */
function evaluatedTwice(values, back, wide) {
  const row = values.slice();
  transform(row, back);
  const found = new Float64Array(2 * row.length);
  found.set(row);
  transform(found, wide);
  return found;
}
