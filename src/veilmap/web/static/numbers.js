/** Numbers as people read them, and round ones for axes. */

/**
 * A number with so many decimals, and a real minus sign.
 *
 * @param {number} value
 * @param {number} [decimals]
 */
export function fixed(value, decimals = 1) {
  return withMinus(value.toFixed(decimals)).replace(/^−(0(\.0*)?)$/, "$1");
}

/**
 * A number to three digits, however large or small.
 *
 * @param {number} value
 */
export function short(value) {
  if (value === Infinity) return "∞";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return withMinus(value.toExponential(1));
  return withMinus(String(Number(value.toPrecision(size >= 1000 ? 4 : 3))));
}

/**
 * A distance as people read it: about two digits, and no less than a centimetre.
 *
 * @param {number} value
 */
export function distance(value) {
  return fixed(value, value < 0.95 ? 2 : value < 9.5 ? 1 : 0);
}

/** @param {number} value */
export function metres(value) {
  return `${distance(value)} m`;
}

/**
 * A span of time in words.
 *
 * @param {number} seconds
 */
export function duration(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${fixed(seconds / 3600, 1)} h`;
}

/** @param {string} text */
function withMinus(text) {
  return text.replace("-", "−");
}

/**
 * The largest of 1, 2 and 5 times a power of ten that is not above a value.
 *
 * @param {number} value
 */
export function roundDown(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([5, 2].find((factor) => factor * power <= value * (1 + 1e-9)) ?? 1);
}

/**
 * Round numbers between two values, about `count` of them.
 *
 * @param {number} low
 * @param {number} high
 * @param {number} count
 */
export function ticks(low, high, count) {
  if (!(high > low)) return Number.isFinite(low) ? [low] : [];
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const steps = [1, 2, 2.5, 5, 10].map((factor) => factor * power);
  const step = steps.find((one) => one >= rough * 0.8) ?? rough;
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}

/**
 * Powers of ten between two values; with few of them, 2 and 5 times those too.
 *
 * @param {number} low
 * @param {number} high
 */
export function logTicks(low, high) {
  const factors = high / low < 300 ? [1, 2, 5] : [1];
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
    found.push(...factors.map((factor) => factor * 10 ** power));
  }
  return found.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
}

const SAMPLED = 40_000;

/**
 * The number below which a share of all values lies; of large arrays a part is looked at.
 *
 * @param {Float32Array[]} arrays
 * @param {number} share
 * @param {(value: number) => number} [show]  what of a value counts
 */
export function percentile(arrays, share, show = (value) => value) {
  const sample = arrays.flatMap((values) => {
    const stride = Math.max(1, Math.ceil(values.length / SAMPLED));
    const count = Math.floor(values.length / stride);
    return Array.from({ length: count }, (_, i) => show(values[i * stride] ?? Number.NaN));
  });
  const sorted = Float64Array.from(sample.filter(Number.isFinite)).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
}
