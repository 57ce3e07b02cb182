/** Labelled form controls, the same in every view. */

import { fill, h } from "./dom.js";
import { short } from "./numbers.js";

let made = 0;

/**
 * A label above a control, with a hint below.
 *
 * @param {string} label
 * @param {HTMLElement} control
 * @param {{hint?: string | undefined, beside?: Node}} [more]
 */
export function field(label, control, { hint, beside } = {}) {
  made += 1;
  control.id ||= `field-${made}`;
  const described = hint ? `${control.id}-hint` : null;
  if (described) control.setAttribute("aria-describedby", described);
  return h(
    "div",
    { class: "field" },
    h("div", { class: "field-head" }, h("label", { for: control.id }, label), beside),
    control,
    hint && h("p", { class: "hint", id: described }, hint),
  );
}

/**
 * @param {object} options
 * @param {string} options.label
 * @param {string} options.testid
 * @param {{value: string, text: string}[]} options.choices
 * @param {string} options.value
 * @param {(value: string) => void} options.change
 * @param {string} [options.hint]
 */
export function choice({ label, testid, choices, value, change, hint }) {
  const select = h("select", { testid, onchange: () => change(select.value) });
  setChoices(select, choices, value);
  return { element: field(label, select, { hint }), select };
}

/**
 * @param {HTMLSelectElement} select
 * @param {{value: string, text: string}[]} choices
 * @param {string} value
 */
export function setChoices(select, choices, value) {
  const [before, now] = [[...select.options], choices].map((all) =>
    JSON.stringify(all.map((one) => [one.value, one.text])),
  );
  // an open list would close if its options were made anew
  if (now !== before)
    fill(select, ...choices.map((one) => h("option", { value: one.value }, one.text)));
  select.value = value;
}

/**
 * A slider over given stops, which need not lie at equal distances.
 *
 * @param {object} options
 * @param {string} options.label
 * @param {string} options.testid
 * @param {number[]} options.stops
 * @param {number} options.value  becomes a stop where it is none
 * @param {string} [options.unit]
 * @param {string} [options.hint]
 * @param {(value: number) => void} options.change
 */
export function slider({ label, testid, stops, value, unit = "", hint, change }) {
  let all = withStop(stops, value);
  const output = h("output", { class: "value" });
  const input = h("input", { type: "range", min: 0, step: 1, testid });
  const chosen = () => all[input.valueAsNumber] ?? value;
  const say = () => {
    const text = `${short(chosen())}${unit && ` ${unit}`}`;
    output.textContent = text;
    input.setAttribute("aria-valuetext", text);
  };
  /** @param {number} next */
  const set = (next) => {
    all = withStop(stops, next);
    input.max = String(all.length - 1);
    input.valueAsNumber = all.indexOf(next);
    say();
  };
  input.addEventListener("input", () => {
    say();
    change(chosen());
  });
  set(value);
  return { element: field(label, input, { hint, beside: output }), set };
}

/**
 * @param {number[]} stops
 * @param {number} value
 */
function withStop(stops, value) {
  return stops.includes(value) ? stops : [...stops, value].sort((a, b) => a - b);
}

/**
 * On or off, at once.
 *
 * @param {object} options
 * @param {string} options.label
 * @param {string} options.testid
 * @param {boolean} options.on
 * @param {string} [options.hint]
 * @param {(on: boolean) => void} options.change
 */
export function toggle({ label, testid, on, hint, change }) {
  const button = h(
    "button",
    {
      type: "button",
      role: "switch",
      class: "switch",
      "aria-checked": String(on),
      testid,
      onclick: () => {
        const now = button.getAttribute("aria-checked") !== "true";
        button.setAttribute("aria-checked", String(now));
        change(now);
      },
    },
    h("span", { class: "knob", "aria-hidden": "true" }),
    label,
  );
  return {
    element: h("div", { class: "field" }, button, hint && h("p", { class: "hint" }, hint)),
    button,
  };
}

/**
 * A button that posts something: idle while it does, and it says what went wrong.
 *
 * @param {string} text
 * @param {() => Promise<void>} act
 * @param {Record<string, unknown>} [attributes]
 */
export function action(text, act, attributes = {}) {
  const button = h("button", { type: "button", ...attributes, onclick: run }, text);
  const problem = h("span", { class: "problem", role: "alert" });
  async function run() {
    button.disabled = true;
    problem.textContent = "";
    try {
      await act();
    } catch (error) {
      problem.textContent = error instanceof Error ? error.message : String(error);
    }
    button.disabled = false;
  }
  return h("span", { class: "action" }, button, problem);
}

/**
 * Stops with ever larger steps, as people count: 0, 0.1, 0.2, 0.5, 1, 2, …
 *
 * @param {number} low
 * @param {number} high
 */
export function roundStops(low, high) {
  const factors = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9];
  const found = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += 1) {
    found.push(...factors.map((factor) => Number((factor * 10 ** power).toPrecision(3))));
  }
  return found.filter((stop) => stop >= low && stop <= high);
}

/**
 * @param {number} low
 * @param {number} high
 * @param {number} step
 */
export function evenStops(low, high, step) {
  return Array.from({ length: Math.round((high - low) / step) + 1 }, (_, i) => low + i * step);
}
