/** A table of text (CSV, TSV, or semicolons) with names in its first line. */

import { Problem } from "./problem.js";

const MOST_BYTES = 50_000_000;
const MOST_ROWS = 1_000_000;
const SHOWN = 12; // names of columns in a message

/**
 * @typedef {object} Table
 * @property {string[]} names  of the columns, in lower case
 * @property {string[][]} rows
 * @property {number[]} lines  where each row begins in the file
 * @property {boolean} decimalComma
 */

/**
 * @param {File} file
 * @returns {Promise<Table>}
 */
export async function readTable(file) {
  if (file.size > MOST_BYTES) {
    throw new Problem(
      `${file.name} is larger than 50 MB: choose a table of the measurements alone, or of a part.`,
    );
  }
  const content = await file.arrayBuffer().catch(() => {
    throw new Problem(`${file.name} cannot be read: choose it again.`);
  });
  return parseTable(decoded(new Uint8Array(content), file.name), file.name);
}

/**
 * @param {string} text
 * @param {string} name  of the file, for messages
 * @returns {Table}
 */
export function parseTable(text, name) {
  const separator = separatorOf(text);
  const [head, ...rest] = records(text, separator, name);
  if (!head) throw new Problem(`${name} is empty: choose a table of your measurements.`);
  const names = head.cells.map((cell) => cell.trim().toLowerCase());
  const twice = names.find((one, i) => one !== "" && names.indexOf(one) !== i);
  if (twice !== undefined) {
    throw new Problem(`${name} has two columns “${twice}” in line ${head.line}: remove one.`);
  }
  for (const { cells, line } of rest) {
    if (cells.length === names.length) continue;
    throw new Problem(
      `${name}, line ${line}: there are ${cells.length} values, but ${names.length} names in the` +
        " first line. Correct the line, or write the table again.",
    );
  }
  return {
    names,
    rows: rest.map(({ cells }) => cells),
    lines: rest.map(({ line }) => line),
    decimalComma: separator === ";",
  };
}

/**
 * @param {Table} table
 * @param {...string} names  of which the first that is there counts
 */
export function columnOf(table, ...names) {
  return names.map((name) => table.names.indexOf(name)).find((at) => at >= 0) ?? -1;
}

/**
 * The columns there are, for messages.
 *
 * @param {Table} table
 */
export function columnsInWords({ names }) {
  const shown = names.slice(0, SHOWN).map((name) => `“${name}”`);
  return shown.join(", ") + (names.length > SHOWN ? ", …" : "");
}

/**
 * A number, or NaN.
 *
 * @param {string} cell
 * @param {boolean} decimalComma
 */
export function numberOf(cell, decimalComma) {
  const text = decimalComma ? cell.trim().replace(",", ".") : cell.trim();
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Number(text) : NaN;
}

/**
 * @param {Uint8Array} bytes
 * @param {string} name
 */
function decoded(bytes, name) {
  const [first, second] = bytes;
  const wide = first === 0xff && second === 0xfe ? "utf-16le" : null;
  const kind = wide ?? (first === 0xfe && second === 0xff ? "utf-16be" : "utf-8");
  if (kind === "utf-8" && bytes.subarray(0, 4096).includes(0)) {
    throw new Problem(
      `${name} is no table of text, perhaps a workbook or a Parquet file: save it as CSV.`,
    );
  }
  try {
    return new TextDecoder(kind, { fatal: true }).decode(bytes); // takes the mark at its head off
  } catch {
    throw new Problem(`${name} is not in UTF-8: save it as CSV in UTF-8.`);
  }
}

/**
 * The character that stands most often between the names.
 *
 * @param {string} text
 */
function separatorOf(text) {
  const head = /^.*/.exec(text.trimStart())?.[0] ?? "";
  const times = (/** @type {string} */ one) => head.split(one).length;
  return [",", ";", "\t"].reduce((best, one) => (times(one) > times(best) ? one : best));
}

/**
 * Lines as cells; lines without any text are left out.
 *
 * @param {string} text
 * @param {string} separator
 * @param {string} name
 */
function records(text, separator, name) {
  const found = [];
  const lineEnd = /\r\n|\n|\r/g;
  for (let [at, line] = [0, 1]; at < text.length; ) {
    lineEnd.lastIndex = at;
    const end = lineEnd.exec(text);
    const plain = text.slice(at, end?.index);
    const begun = line;
    let cells;
    if (plain.includes('"')) {
      const quoted = quotedCells(text, at, separator);
      if (!quoted) {
        throw new Problem(`${name}, line ${line}: a quotation mark is not closed. Close it.`);
      }
      cells = quoted.cells;
      line += text.slice(at, quoted.end).match(lineEnd)?.length ?? 0;
      at = quoted.end;
    } else {
      cells = plain.split(separator);
      at = end ? lineEnd.lastIndex : text.length;
      line += 1;
    }
    if (cells.some((cell) => cell.trim() !== "")) found.push({ cells, line: begun });
    if (found.length > MOST_ROWS + 1) {
      throw new Problem(`${name} has more than 1,000,000 rows: choose a part of them.`);
    }
  }
  return found;
}

/**
 * The cells of a line some of which are in quotation marks, in which "" is one such mark.
 *
 * @param {string} text
 * @param {number} from
 * @param {string} separator
 */
function quotedCells(text, from, separator) {
  const cells = [];
  for (let at = from; ; at += 1) {
    let cell = "";
    if (text[at] === '"') {
      for (at += 1; text[at] !== '"' || text[at + 1] === '"'; at += 1) {
        if (at >= text.length) return null;
        if (text[at] === '"') at += 1;
        cell += text[at];
      }
      at += 1;
    }
    while (at < text.length && text[at] !== separator && text[at] !== "\n" && text[at] !== "\r") {
      cell += text[at];
      at += 1;
    }
    cells.push(cell);
    if (text[at] !== separator) {
      return { cells, end: at + (text.startsWith("\r\n", at) ? 2 : 1) };
    }
  }
}
