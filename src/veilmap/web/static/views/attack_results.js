/** What attackers found out about one user, in a sentence, a legend and a table. */

/** @import {Estimate, Scheme, SeenHeader} from "../types.js" */

import { h } from "../dom.js";
import { attackLook, shapeIcon, TRUTH } from "../marks.js";
import { distance, metres } from "../numbers.js";
import { table } from "../table.js";

/** @type {Record<Scheme["name"], string>} */
const DEFENCE = {
  "no noise": "no noise",
  uniform: "uniform",
  aligned: "aligned",
  sent: "sent",
};

const GUESSING = "prior only";
/** Further away than this, nobody is found. */
const FOUND = 10;

/** @param {SeenHeader} header */
export function attacksOf({ schemes }) {
  return [...new Set(schemes.flatMap(({ estimates }) => estimates.map(({ attack }) => attack)))];
}

/**
 * The closest attack. Guessing is none, even where it is lucky.
 *
 * @param {Scheme | undefined} scheme
 */
function bestOf(scheme) {
  const attacks = (scheme?.estimates ?? []).filter(({ attack }) => attack !== GUESSING);
  const scored = attacks.filter(({ error }) => error !== null);
  return scored.reduce(
    (/** @type {Estimate | null} */ best, one) =>
      best && (best.error ?? 0) <= (one.error ?? 0) ? best : one,
    null,
  );
}

/**
 * One sentence: what aligned noise does to the attacker it was made for, and to the best one.
 *
 * @param {SeenHeader} header
 */
export function summary(header) {
  const { schemes, summed, pending } = header;
  if (!attacksOf(header).length && !pending.length) return "No attack was tried here.";
  const aligned = schemes.find(({ name }) => name === "aligned") ?? schemes.at(-1);
  const best = bestOf(aligned);
  if (!aligned || !best || best.error === null) {
    return pending.length
      ? "The attacks are being prepared …"
      : "Where this user was is not known here.";
  }
  const found = best.error < FOUND ? "finds this user within" : "comes no closer than";
  const closest = `${best.attack} ${found} ${metres(best.error)}`;
  if (summed !== null) return ofSum(summed, best, aligned);
  const centroid = aligned.estimates.find(({ attack }) => attack.startsWith("centroid"));
  if (!centroid || centroid.error === null) return `Under aligned noise, ${closest}.`;
  const moves = `Geometry-aligned noise moves the centroid attack ${metres(centroid.error)} away`;
  if (best === centroid) return `${moves}, and no other attack comes closer.`;
  return `${moves}; ${closest.replace("finds", "still finds")}.`;
}

/**
 * @param {number} users
 * @param {Estimate} best
 * @param {Scheme} scheme
 */
function ofSum(users, best, { estimates }) {
  const guess = estimates.find(({ attack }) => attack === GUESSING)?.error ?? 0;
  const off = best.error ?? 0;
  const beside = `${metres(off)} off, guessing the middle of the map ${metres(guess)}`;
  return off < FOUND
    ? `Even in the sum over ${users} users, ${best.attack} finds this user within ${metres(off)}.`
    : `In the sum over ${users} users with aligned noise, ${best.attack} is ${beside}.`;
}

/** @param {SeenHeader} header */
export function markLegend(header) {
  const attacks = attacksOf(header);
  return h(
    "ul",
    { class: "marks" },
    header.position && h("li", {}, shapeIcon(TRUTH), "true position"),
    ...attacks.map((attack) => h("li", {}, shapeIcon(attackLook(attack, attacks)), attack)),
  );
}

/** @param {SeenHeader} header */
export function attacksTable(header) {
  const { schemes, summed } = header;
  const ofSum = summed === null ? "" : `, of the sum over ${summed} users`;
  const best = new Map(schemes.map((scheme) => [scheme, bestOf(scheme)]));
  const rows = attacksOf(header).map((attack) => [
    attack,
    ...schemes.map((scheme) => {
      const estimate = scheme.estimates.find((one) => one.attack === attack);
      if (!estimate) return "–";
      if (estimate.error === null) return "not known";
      const text = distance(estimate.error);
      return estimate === best.get(scheme) ? closest(text) : text;
    }),
  ]);
  return table({
    caption: `Metres from the truth${ofSum}; ★ is the closest`,
    head: ["Attack", ...schemes.map(({ name }) => DEFENCE[name])],
    rows,
    testid: "attacks",
  });
}

/** @param {string} text */
function closest(text) {
  const star = h("span", { "aria-hidden": "true" }, " ★");
  return h("strong", { class: "best" }, text, star, h("span", { class: "hidden" }, " (closest)"));
}
