/** From a table to the readings of one person, in metres of the survey's coordinate system. */

/** @import {Readings} from "./contribution.js" */
/** @import {Survey} from "./task.js" */
/** @import {Table} from "./table.js" */

import { Problem } from "./problem.js";
import { toMetres, utmZone } from "./projection.js";
import { columnOf, columnsInWords, numberOf } from "./table.js";

/**
 * What a table holds: who measured, and how to take the readings of one of them.
 *
 * @typedef {object} Measured
 * @property {{id: string, rows: number}[]} users  one without name, if the table names none
 * @property {(user: string) => Readings & {lines: number[]}} of
 */

/**
 * @param {Table} table
 * @param {Survey} survey
 * @param {string} name  of the file, for messages
 * @returns {Measured}
 */
export function measured(table, survey, name) {
  if (table.rows.length === 0) {
    throw new Problem(`${name} has no rows below the names of its columns: choose another table.`);
  }
  const bs = needed(table, name, "the base station", "bs");
  const gain = needed(table, name, "the gain in dB", "gain_db", "gain");
  const place = placing(table, survey, name);
  const user = columnOf(table, "user");
  const userOf = (/** @type {string[]} */ row) => (user < 0 ? "" : cellOf(row, user));
  /** @type {Map<string, number>} */
  const users = new Map();
  for (const row of table.rows) users.set(userOf(row), (users.get(userOf(row)) ?? 0) + 1);
  return {
    users: Array.from(users, ([id, rows]) => ({ id, rows })),
    of: (id) => {
      const own = table.rows.flatMap((row, i) => (userOf(row) === id ? [i] : []));
      const rows = own.map((i) => table.rows[i] ?? []);
      const places = rows.map(place);
      return {
        x: Float64Array.from(places, ([x]) => x),
        y: Float64Array.from(places, ([, y]) => y),
        bs: rows.map((row) => cellOf(row, bs)),
        gain: Float64Array.from(rows, (row) => numberIn(table, row, gain)),
        lines: own.map((i) => table.lines[i] ?? 0),
      };
    },
  };
}

/**
 * How the place of a row is found.
 *
 * @param {Table} table
 * @param {Survey} survey
 * @param {string} name
 * @returns {(row: string[]) => [number, number]}
 */
function placing(table, { grid }, name) {
  const [x, y] = [columnOf(table, "user_x"), columnOf(table, "user_y")];
  if (x >= 0 && y >= 0) return (row) => [numberIn(table, row, x), numberIn(table, row, y)];
  const [latitude, longitude] = [columnOf(table, "latitude"), columnOf(table, "longitude")];
  if (latitude < 0 || longitude < 0) {
    throw new Problem(
      `${name} needs the columns latitude and longitude, or user_x and user_y in metres; it has` +
        ` ${columnsInWords(table)}.`,
    );
  }
  const zone = utmZone(grid.crs);
  if (!zone) {
    const system = grid.crs ? `metres of ${grid.crs}` : "metres of the survey’s own plane";
    const command = grid.crs ? " The command veilmap contribute converts any system." : "";
    throw new Problem(
      `This survey needs positions in ${system}, in columns user_x and user_y; this page converts` +
        ` latitude and longitude to UTM zones only.${command}`,
    );
  }
  return (row) => toMetres(zone, numberIn(table, row, latitude), numberIn(table, row, longitude));
}

/**
 * @param {Table} table
 * @param {string} name
 * @param {string} what
 * @param {...string} names
 */
function needed(table, name, what, ...names) {
  const found = columnOf(table, ...names);
  if (found >= 0) return found;
  throw new Problem(
    `${name} has no column “${names[0]}” with ${what}; it has ${columnsInWords(table)}. Name that` +
      " column so in the first line.",
  );
}

/**
 * @param {string[]} row
 * @param {number} column
 */
function cellOf(row, column) {
  return (row[column] ?? "").trim();
}

/**
 * @param {Table} table
 * @param {string[]} row
 * @param {number} column
 */
function numberIn({ decimalComma }, row, column) {
  return numberOf(row[column] ?? "", decimalComma);
}
