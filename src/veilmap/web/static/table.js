/** Tables with a caption and headings, as screen readers need them. */

/** @import {Child} from "./dom.js" */

import { h } from "./dom.js";

/**
 * @param {object} options
 * @param {string} options.caption
 * @param {Child[]} options.head
 * @param {Child[][]} options.rows  the first of each heads it
 * @param {string} [options.testid]
 */
export function table({ caption, head, rows, testid }) {
  const body = rows.map(([first, ...rest]) =>
    h("tr", {}, h("th", { scope: "row" }, first), ...rest.map((cell) => h("td", {}, cell))),
  );
  return h(
    "div",
    { class: "table" },
    h(
      "table",
      { testid },
      h("caption", {}, h("span", {}, caption)),
      h("thead", {}, h("tr", {}, ...head.map((cell) => h("th", { scope: "col" }, cell)))),
      h("tbody", {}, ...body),
    ),
  );
}
