/** Reads a line of JSON with the float32 arrays behind it. */

/** @import {ArrayInfo} from "./types.js" */

/**
 * A header and arrays of float32, row 0 southern.
 *
 * @template Header
 * @typedef {{header: Header, arrays: Map<string, Float32Array>}} Pack
 */

const NEWLINE = 10;

/**
 * @template {{arrays: ArrayInfo[]}} Header
 * @param {ArrayBuffer} body
 * @returns {Pack<Header>}
 */
export function readPack(body) {
  const bytes = new Uint8Array(body);
  const end = bytes.indexOf(NEWLINE);
  if (end < 0) throw new Error("The server's answer has no header");
  /** @type {Header} */
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end)));
  const arrays = new Map();
  let offset = end + 1;
  for (const { name, rows, columns } of header.arrays) {
    arrays.set(name, littleEndian(body, offset, rows * columns));
    offset += 4 * rows * columns;
  }
  return { header, arrays };
}

/**
 * Browsers on hosts of the other byte order are rare, but would show noise without a word.
 *
 * @param {ArrayBuffer} body
 * @param {number} offset
 * @param {number} count
 */
function littleEndian(body, offset, count) {
  if (new Uint8Array(new Uint16Array([1]).buffer)[0] === 1) {
    return new Float32Array(body, offset, count);
  }
  const view = new DataView(body, offset, 4 * count);
  return Float32Array.from({ length: count }, (_, i) => view.getFloat32(4 * i, true));
}
