/** The runs that people compare: each kind of noise, from little to much. */

/** @import {NewRun, RunDetail} from "../types.js" */

const AMOUNTS = [1, 10, 50];
const EPSILON = 8;

/**
 * @param {RunDetail} run  whose measurements to train on
 * @returns {NewRun[]}
 */
export function usualSet(run) {
  /** @type {NewRun} */
  const plain = {
    like: run.id,
    city: 0,
    users: run.users ?? 100,
    mechanism: "none",
    budget: null,
    tradeoff: null,
    epsilon: null,
    clip: null,
    sums: false,
    rounds: run.rounds,
    seed: 0,
  };
  return [
    plain,
    ...AMOUNTS.map((budget) => ({ ...plain, mechanism: /** @type {const} */ ("uniform"), budget })),
    ...AMOUNTS.map((budget) => ({ ...plain, mechanism: /** @type {const} */ ("aligned"), budget })),
    { ...plain, mechanism: "aggregate", epsilon: EPSILON },
  ];
}

/**
 * Those wishes that no label tells of.
 *
 * @param {NewRun[]} wishes
 * @param {string[]} labels  such as "aligned, μ = 50, ρ = 1"
 */
export function unseen(wishes, labels) {
  return wishes.filter((wish) => !labels.some((label) => tellsOf(label, wish)));
}

/**
 * @param {string} label
 * @param {NewRun} wish
 */
function tellsOf(label, { mechanism, budget, epsilon }) {
  const [family = "", ...parts] = label.split(",").map((part) => part.trim());
  if (family !== mechanism) return false;
  return (
    (mechanism === "aggregate" || !parts.includes("sums only")) &&
    (budget === null || parts.includes(`μ = ${budget}`)) &&
    (epsilon === null || parts.includes(`ε = ${epsilon}`))
  );
}
