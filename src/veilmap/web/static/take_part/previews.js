/** What stays on this device, and what leaves it, before anything is sent. */

/** @import {Contribution, Fate, Readings} from "./contribution.js" */
/** @import {Shares} from "./report.js" */
/** @import {Look} from "../marks.js" */
/** @import {Task} from "./task.js" */

import { fill, h } from "../dom.js";
import { STATION, shapeIcon } from "../marks.js";
import { toHex } from "./bytes.js";
import { NOT_USED, USED, drawElements, drawVector } from "./pictures.js";
import { halfBytes } from "./report.js";
import { PRIME } from "./shares.js";
import { hostOf } from "./task.js";

/** @type {[Fate, string][]} */
const FATES = [
  ["used", "Readings used"],
  ["outside", "Outside the area"],
  ["unknown", "Of other base stations"],
  ["unusable", "Position or gain missing or impossible"],
];

/**
 * How many readings are used, and why others are not.
 *
 * @param {Contribution} own
 * @param {number[]} lines  of the readings in their file
 */
export function summary({ fates }, lines) {
  const rows = FATES.map(([fate, words]) => {
    const count = fates.filter((one) => one === fate).length;
    const first = lines[fates.indexOf(fate)];
    const where = fate !== "used" && count > 0 && `first in line ${first}`;
    return h(
      "tr",
      { class: fate === "used" && "main", testid: `count-${fate}` },
      h("th", { scope: "row" }, words, where && h("div", { class: "hint" }, where)),
      h("td", {}, grouped(count)),
    );
  });
  return [
    h("table", {}, h("tbody", {}, ...rows)),
    h(
      "p",
      { class: "hint" },
      "Of the readings used, means over the points around them enter the report; how often and when" +
        " you measured does not. None of these counts leaves this device.",
    ),
  ];
}

export function mapLegend() {
  /** @type {[Look, string][]} */
  const looks = [
    [USED, "reading"],
    [NOT_USED, "reading of another base station"],
    [STATION, "base station"],
  ];
  return looks.map(([look, words]) => h("span", {}, shapeIcon(look), words));
}

/**
 * The map in words.
 *
 * @param {Task} task
 * @param {Readings} readings
 * @param {Contribution} own
 */
export function mapInWords({ survey }, { bs }, { fates }) {
  const used = bs.filter((_, i) => fates[i] === "used");
  return (
    `Map of the survey’s area with ${grouped(survey.stations.length)} base stations and your` +
    ` ${grouped(used.length)} readings of ${grouped(new Set(used).size)} of them.`
  );
}

/**
 * Fills the part on what leaves.
 *
 * @param {HTMLElement} place
 * @param {Task} task
 * @param {Shares} shares
 * @param {Contribution} own
 */
export function showHalves(place, task, shares, { vector }) {
  const cells = grouped(vector.length);
  const leader = canvas("share", `The leader’s share: ${cells} cells of random grey.`);
  const changed = vector.reduce((count, value) => count + Number(value !== 0), 0);
  const both = canvas("contribution", `The contribution: ${changed} of ${cells} cells are not 0.`);
  fill(
    place,
    card(
      "half leader",
      `To ${hostOf(task.leader)}`,
      size(halfBytes(task, "leader")),
      leader,
      `Your ${cells} numbers, each less a random one, modulo ${grouped(PRIME)}: one cell a number,` +
        " black for 0. Without the other half nobody can tell them from random numbers." +
        (task.proofs ? " A proof follows that they are as small as the survey asks, and no more." : ""),
    ),
    card(
      "half",
      `To ${hostOf(task.helper)}`,
      size(halfBytes(task, "helper")),
      h("code", { class: "seed", testid: "seed" }, toHex(shares.helper)),
      (task.proofs ? "Seeds" : "The seed") +
        " from which those random numbers are made, which tell nothing of your numbers.",
    ),
    card(
      "half both",
      "Only both halves together",
      "is not sent",
      both,
      `What the two would see if they colluded: ${grouped(changed)} of your ${cells} numbers are not` +
        " 0 (orange above 0, purple below).",
    ),
  );
  drawElements(leader, shares.elements);
  drawVector(both, vector);
}

/**
 * @param {string} testid
 * @param {string} words
 */
function canvas(testid, words) {
  return h("canvas", { class: "numbers", role: "img", "aria-label": words, testid });
}

/**
 * @param {string} kind
 * @param {string} title
 * @param {string} beside
 * @param {HTMLElement} content
 * @param {string} words
 */
function card(kind, title, beside, content, words) {
  const head = h("div", { class: "half-head" }, h("h3", {}, title), h("span", {}, beside));
  return h("div", { class: kind }, head, content, h("p", { class: "hint" }, words));
}

/** @param {number} bytes */
function size(bytes) {
  if (bytes < 1000) return `${bytes} bytes`;
  return bytes < 1e6 ? `${(bytes / 1000).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

/** @param {number} count */
export function grouped(count) {
  return count.toLocaleString("en-GB");
}
