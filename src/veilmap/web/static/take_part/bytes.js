/** Bytes as reports are made of them. */

/** @typedef {Uint8Array<ArrayBuffer>} Bytes */

const encoder = new TextEncoder();

/**
 * @param {string} text
 * @returns {Bytes}
 */
export function utf8(text) {
  return encoder.encode(text);
}

/**
 * Hexadecimal digits, as Python's `bytes.hex` writes them.
 *
 * @param {Bytes} bytes
 */
export function toHex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * @param {string} digits
 * @returns {Bytes}
 */
export function fromHex(digits) {
  if (!/^([0-9a-f]{2})*$/i.test(digits)) throw new TypeError("these are no hexadecimal digits");
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

/**
 * Parts one after another.
 *
 * @param {...Bytes} parts
 * @returns {Bytes}
 */
export function joined(...parts) {
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/**
 * A whole number as so many bytes, the most significant one first.
 *
 * @param {number | bigint} number
 * @param {number} length
 * @returns {Bytes}
 */
export function bigEndian(number, length) {
  return fromHex(number.toString(16).padStart(2 * length, "0"));
}

/**
 * @param {Bytes} bytes
 * @param {Bytes} others
 */
export function equal(bytes, others) {
  return bytes.length === others.length && bytes.every((byte, i) => byte === others[i]);
}

/**
 * The body of an answer; an error where it is longer than `most`, whoever sends it.
 *
 * @param {Response} answer
 * @param {number} most
 * @returns {Promise<Bytes>}
 */
export async function bytesOf(answer, most) {
  const parts = [];
  let size = 0;
  const reader = /** @type {ReadableStream<Bytes>} */ (answer.body).getReader();
  for (let part = await reader.read(); part.value; part = await reader.read()) {
    parts.push(part.value);
    size += part.value.length;
    if (size > most) {
      await reader.cancel();
      throw new Error(`more than ${most} bytes`);
    }
  }
  return joined(...parts);
}

/**
 * From the system's generator.
 *
 * @param {number} length
 * @returns {Bytes}
 */
export function random(length) {
  return crypto.getRandomValues(new Uint8Array(length));
}

/**
 * SHA-256 of all parts one after another.
 *
 * @param {...Bytes} parts
 * @returns {Promise<Bytes>}
 */
export async function sha256(...parts) {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", joined(...parts)));
}
