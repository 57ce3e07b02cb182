/** The form for a new run, which asks only for what its mechanism has. */

/** @import {NewRun, RunSummary} from "./types.js" */

import { inWords, post } from "./api.js";
import { field } from "./controls.js";
import { fill, h } from "./dom.js";

/** @typedef {NonNullable<NewRun["mechanism"]>} Mechanism */

const CITY = "";

/** @type {Record<Mechanism, string>} */
const MECHANISMS = {
  aligned: "Geometry-aligned noise",
  uniform: "Uniform noise",
  none: "No noise",
  aggregate: "Sums with a proven ε",
};

/**
 * Whose field it is: of some mechanisms, or of a new city.
 *
 * @type {Record<string, Mechanism[]>}
 */
const BELONGS = {
  budget: ["uniform", "aligned"],
  tradeoff: ["aligned"],
  epsilon: ["aggregate"],
  clip: ["uniform", "aligned", "aggregate"],
  sums: ["none", "uniform", "aligned"],
};

/**
 * @param {HTMLDialogElement} dialog
 * @param {(run: RunSummary) => void} started
 */
export function newRunDialog(dialog, started) {
  const problem = h("p", { class: "problem", role: "alert" });
  const start = h("button", { type: "submit", class: "main", testid: "start-run" }, "Start");
  const form = h("form", { class: "stack" });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    start.disabled = true;
    problem.textContent = "";
    try {
      /** @type {RunSummary} */
      const run = await post("/api/runs", wishOf(form));
      dialog.close();
      started(run);
    } catch (error) {
      problem.textContent = inWords(error);
    }
    start.disabled = false;
  });
  form.addEventListener("input", () => showFitting(form));
  return {
    /** @param {RunSummary[]} runs  whose measurements can be taken */
    open(runs) {
      problem.textContent = "";
      fill(
        form,
        h("h2", {}, "New run"),
        h("div", { class: "grid-fields" }, ...fields(runs)),
        problem,
        h(
          "div",
          { class: "buttons" },
          start,
          h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
        ),
      );
      fill(dialog, form);
      showFitting(form);
      dialog.showModal();
    },
  };
}

/** @param {RunSummary[]} runs */
function fields(runs) {
  const like = h(
    "select",
    { name: "like" },
    h("option", { value: CITY }, "A synthetic city"),
    ...runs.map(({ id, name, label }) => h("option", { value: id }, `Those of ${name} (${label})`)),
  );
  const mechanism = h(
    "select",
    { name: "mechanism" },
    ...Object.entries(MECHANISMS).map(([value, text]) => h("option", { value }, text)),
  );
  return [
    wide(field("Measurements", like)),
    numeric("city", "City number", { value: 0, min: 0, step: 1, required: true }),
    numeric("users", "Users", { value: 100, min: 1, step: 1, required: true }),
    wide(field("Mechanism", mechanism)),
    numeric("budget", "Noise budget, μ", { value: 50, min: 0, step: "any" }),
    numeric("tradeoff", "Trade-off, ρ", { min: 0, step: "any", placeholder: "usual" }),
    numeric("epsilon", "Promise, ε", { value: 8, min: 0.01, step: "any" }),
    numeric("clip", "Clipping, C", { min: 0, step: "any", placeholder: "usual" }),
    numeric("rounds", "Rounds", { value: 200, min: 1, step: 1, required: true }),
    numeric("seed", "Seed", { min: 0, step: 1, placeholder: "none: never twice the same" }),
    wide(
      h(
        "label",
        { class: "check", "data-field": "sums" },
        h("input", { type: "checkbox", name: "sums" }),
        "The server sees only sums",
      ),
    ),
  ];
}

/**
 * @param {string} name
 * @param {string} label
 * @param {Record<string, unknown>} attributes
 */
function numeric(name, label, attributes) {
  const element = field(label, h("input", { type: "number", name, ...attributes }));
  element.dataset.field = name;
  return element;
}

/** @param {HTMLElement} element */
function wide(element) {
  element.classList.add("wide");
  return element;
}

/**
 * Hides fields that the chosen mechanism or source has no use for.
 *
 * @param {HTMLFormElement} form
 */
function showFitting(form) {
  const said = new FormData(form);
  const mechanism = /** @type {Mechanism} */ (said.get("mechanism"));
  for (const element of form.querySelectorAll("[data-field]")) {
    if (!(element instanceof HTMLElement)) continue;
    const name = element.dataset.field ?? "";
    const ofCity = name === "city" || name === "users";
    const fits = ofCity ? said.get("like") === CITY : (BELONGS[name]?.includes(mechanism) ?? true);
    element.hidden = !fits;
  }
}

/**
 * @param {HTMLFormElement} form
 * @returns {NewRun}
 */
function wishOf(form) {
  const said = new FormData(form);
  const mechanism = /** @type {Mechanism} */ (said.get("mechanism"));
  const text = (/** @type {string} */ name) => String(said.get(name) ?? "").trim();
  const number = (/** @type {string} */ name) => {
    const fits = BELONGS[name]?.includes(mechanism) ?? true;
    return fits && text(name) ? Number(text(name)) : null;
  };
  return {
    like: text("like") || null,
    city: number("city") ?? 0,
    users: number("users") ?? 100,
    mechanism,
    budget: number("budget"),
    tradeoff: number("tradeoff"),
    epsilon: number("epsilon"),
    clip: number("clip"),
    sums: mechanism !== "aggregate" && said.has("sums"),
    rounds: number("rounds") ?? 200,
    seed: number("seed"),
  };
}
