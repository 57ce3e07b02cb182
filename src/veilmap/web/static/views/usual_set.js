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
    options: {},
    sums: false,
    rounds: run.rounds,
    seed: 0,
  };
  /**
   * @param {NonNullable<NewRun["mechanism"]>} mechanism
   * @param {Record<string, number>} options
   * @returns {NewRun}
   */
  const protectedBy = (mechanism, options) => ({ ...plain, mechanism, options });
  return [
    plain,
    ...AMOUNTS.map((budget) => protectedBy("uniform", { noise_budget: budget })),
    ...AMOUNTS.map((budget) => protectedBy("aligned", { noise_budget: budget })),
    protectedBy("aggregate", { epsilon: EPSILON }),
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
function tellsOf(label, { mechanism, options }) {
  const [family = "", ...parts] = label.split(",").map((part) => part.trim());
  if (family !== mechanism) return false;
  /** @type {(symbol: string, value: number | undefined) => boolean} */
  const says = (symbol, value) => value === undefined || parts.includes(`${symbol} = ${value}`);
  return (
    (mechanism === "aggregate" || !parts.includes("sums only")) &&
    says("μ", options?.noise_budget) &&
    says("ε", options?.epsilon)
  );
}
