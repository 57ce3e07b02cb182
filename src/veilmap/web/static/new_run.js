/** The form for a new run, which asks only for what its mechanism has. */

/** @import {MechanismInfo, NewRun, RunSummary} from "./types.js" */

import { getJson, inWords, post } from "./api.js";
import { field } from "./controls.js";
import { fill, h } from "./dom.js";

const CITY = "";
const USUAL = "aligned";

/**
 * @param {HTMLDialogElement} dialog
 * @param {(run: RunSummary) => void} started
 */
export function newRunDialog(dialog, started) {
  const problem = h("p", { class: "problem", role: "alert" });
  const start = h("button", { type: "submit", class: "main", testid: "start-run" }, "Start");
  const form = h("form", { class: "stack" });
  /** @type {MechanismInfo[]} */
  let mechanisms = [];
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    start.disabled = true;
    problem.textContent = "";
    try {
      /** @type {RunSummary} */
      const run = await post("/api/runs", wishOf(form, mechanisms));
      dialog.close();
      started(run);
    } catch (error) {
      problem.textContent = inWords(error);
    }
    start.disabled = false;
  });
  form.addEventListener("input", () => showFitting(form, mechanisms));
  return {
    /** @param {RunSummary[]} runs  whose measurements can be taken */
    async open(runs) {
      problem.textContent = "";
      mechanisms = await getJson("/api/mechanisms");
      fill(
        form,
        h("h2", {}, "New run"),
        h("div", { class: "grid-fields" }, ...fields(runs, mechanisms)),
        problem,
        h(
          "div",
          { class: "buttons" },
          start,
          h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
        ),
      );
      fill(dialog, form);
      showFitting(form, mechanisms);
      dialog.showModal();
    },
  };
}

/**
 * @param {RunSummary[]} runs
 * @param {MechanismInfo[]} mechanisms
 */
function fields(runs, mechanisms) {
  const withUsers = runs.filter(({ kind }) => kind === "run");
  const like = h(
    "select",
    { name: "like" },
    h("option", { value: CITY }, "A synthetic city"),
    ...withUsers.map(({ id, name, label }) => h("option", { value: id }, `Those of ${name} (${label})`)),
  );
  const mechanism = h(
    "select",
    { name: "mechanism" },
    ...mechanisms.map(({ name, title }) => h("option", { value: name, selected: name === USUAL }, title)),
  );
  return [
    wide(field("Measurements", like)),
    numeric("city", "City number", { value: 0, min: 0, step: 1, required: true }),
    numeric("users", "Users", { value: 100, min: 1, step: 1, required: true }),
    wide(field("Mechanism", mechanism)),
    ...mechanisms.flatMap(({ name, options }) =>
      options.map((option) =>
        numeric(`${name}.${option.name}`, option.help, {
          placeholder: option.default,
          min: option.least,
          max: option.most,
          step: "any",
        }),
      ),
    ),
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
 * @param {MechanismInfo[]} mechanisms
 */
function showFitting(form, mechanisms) {
  const said = new FormData(form);
  const chosen = chosenOf(form, mechanisms);
  for (const element of form.querySelectorAll("[data-field]")) {
    if (!(element instanceof HTMLElement)) continue;
    const name = element.dataset.field ?? "";
    if (name === "city" || name === "users") element.hidden = said.get("like") !== CITY;
    if (name === "sums") element.hidden = chosen?.needs_sums ?? false;
    if (name.includes(".")) element.hidden = !name.startsWith(`${chosen?.name}.`);
  }
}

/**
 * @param {HTMLFormElement} form
 * @param {MechanismInfo[]} mechanisms
 */
function chosenOf(form, mechanisms) {
  const name = new FormData(form).get("mechanism");
  return mechanisms.find((mechanism) => mechanism.name === name);
}

/**
 * @param {HTMLFormElement} form
 * @param {MechanismInfo[]} mechanisms
 * @returns {NewRun}
 */
function wishOf(form, mechanisms) {
  const said = new FormData(form);
  const chosen = chosenOf(form, mechanisms);
  const text = (/** @type {string} */ name) => String(said.get(name) ?? "").trim();
  const number = (/** @type {string} */ name) => (text(name) ? Number(text(name)) : null);
  const given = (chosen?.options ?? []).flatMap(({ name }) => {
    const value = number(`${chosen?.name}.${name}`);
    return value === null ? [] : [[name, value]];
  });
  return {
    like: text("like") || null,
    city: number("city") ?? 0,
    users: number("users") ?? 100,
    mechanism: text("mechanism"),
    options: Object.fromEntries(given),
    sums: !chosen?.needs_sums && said.has("sums"),
    rounds: number("rounds") ?? 200,
    seed: number("seed"),
  };
}
