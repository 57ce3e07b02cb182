/** The panes of a view, which share one viewport, one pointer and one readout. */

/** @import {Hands} from "./pane_input.js" */
/** @import {Layer} from "./pane.js" */
/** @import {Mark} from "./marks.js" */
/** @import {Point} from "./viewport.js" */
/** @import {GridInfo} from "./types.js" */

import { fill, h, throttled } from "./dom.js";
import { fixed } from "./numbers.js";
import { Pane } from "./pane.js";
import { PaneInput } from "./pane_input.js";
import { Viewport } from "./viewport.js";

/** @typedef {{click: Hands["click"], drag: Hands["drag"], drop: Hands["drop"]}} Tools */

/** @type {Tools} */
const NO_TOOLS = { click: () => {}, drag: () => {}, drop: () => {} };
const BUTTON_ZOOM = 1.6;
const HINT = "Point at the map to read it.";

export class Stage {
  viewport = new Viewport();
  /** @type {Pane[]} */
  panes = [];
  /** What clicks and drags do in the view that is open. */
  tools = NO_TOOLS;
  /** @type {GridInfo | null} */
  #grid = null;
  #busy = 0;
  #element;
  #panes = h("div", { class: "panes" });
  #beside = h("div", { class: "beside", hidden: true });
  #above = h("div", { class: "above", hidden: true });
  #notice = h("div", { class: "notice", role: "status", hidden: true });
  #readout = h("output", { class: "readout", testid: "readout" }, HINT);
  #bar;
  #speak;

  /**
   * @param {HTMLElement} element
   * @param {HTMLElement} announcer  where screen readers listen
   */
  constructor(element, announcer) {
    this.#element = element;
    this.#speak = throttled((/** @type {string} */ text) => (announcer.textContent = text), 500);
    this.#bar = h("div", { class: "stage-bar" }, this.#readout, this.#zoomButtons());
    const shown = h("div", { class: "shown" }, this.#panes, this.#beside);
    fill(element, this.#above, shown, this.#bar, this.#notice);
    this.viewport.addEventListener("change", () => {
      element.classList.toggle("whole", this.viewport.whole);
      this.redraw();
    });
    element.dataset.busy = "false";
  }

  #zoomButtons() {
    /** @type {[string, string, () => void][]} */
    const buttons = [
      ["−", "Zoom out", () => this.viewport.zoomBy(1 / BUTTON_ZOOM)],
      ["+", "Zoom in", () => this.viewport.zoomBy(BUTTON_ZOOM)],
      ["Whole map", "Show the whole map", () => this.viewport.reset()],
    ];
    return h(
      "div",
      { class: "zoom", role: "group", "aria-label": "Zoom" },
      ...buttons.map(([text, label, onclick]) =>
        h("button", { type: "button", class: "quiet", "aria-label": label, onclick }, text),
      ),
    );
  }

  /**
   * @param {GridInfo} grid
   */
  setGrid(grid) {
    this.#grid = grid;
    this.viewport.setBounds(grid);
  }

  /**
   * Shows panes of these names; those that are there already keep what they show. What is
   * "after" takes a place among them.
   *
   * @param {{name: string, title: string}[]} wanted
   * @param {{above?: Node | null, beside?: Node | null, after?: HTMLElement | null}} [more]
   */
  arrange(wanted, { above = null, beside = null, after = null } = {}) {
    const before = new Map(this.panes.map((pane) => [pane.name, pane]));
    this.panes = wanted.map(({ name, title }) => {
      const pane = before.get(name) ?? this.#newPane(name, title);
      pane.title = title;
      return pane;
    });
    const elements = [...this.panes.map((pane) => pane.element), ...(after ? [after] : [])];
    const there = [...this.#panes.children];
    if (elements.some((element, i) => element !== there[i]) || elements.length !== there.length) {
      fill(this.#panes, ...elements);
    }
    this.#panes.dataset.count = String(elements.length);
    this.#bar.hidden = !wanted.length;
    keep(this.#above, above);
    keep(this.#beside, beside);
  }

  /** Forgets everything shown, as another view begins. */
  clear() {
    this.tools = NO_TOOLS;
    this.notice(null);
    this.arrange([]);
  }

  /**
   * @param {string} name
   * @param {string} title
   */
  #newPane(name, title) {
    const pane = new Pane(name, title, this.viewport);
    new PaneInput(pane, this.viewport, {
      point: (place, spoken) => this.#point(place, spoken),
      click: (place, mark) => this.tools.click(place, mark),
      drag: (mark, place) => this.tools.drag(mark, place),
      drop: () => this.tools.drop(),
    });
    return pane;
  }

  /**
   * @param {string} name
   * @param {Layer} layer
   * @param {{marks?: Mark[], footprints?: Path2D | null}} [over]
   */
  paint(name, layer, { marks = [], footprints = null } = {}) {
    const pane = this.panes.find((one) => one.name === name);
    if (!pane) return;
    pane.marks = marks;
    pane.footprints = footprints;
    pane.show(layer);
  }

  redraw() {
    for (const pane of this.panes) pane.draw();
  }

  /**
   * A sentence in place of the map; null takes it away.
   *
   * @param {string | Node | null} what
   * @param {"loading" | "said"} [kind]
   */
  notice(what, kind = "said") {
    this.#notice.hidden = what === null;
    this.#notice.dataset.kind = kind;
    fill(this.#notice, what && h("div", { class: "card" }, what));
    if (what !== null && kind === "said") document.documentElement.dataset.ready = "true";
  }

  /**
   * Counts what is under way; it is over when its answer has been drawn.
   *
   * @param {boolean} busy
   */
  busy(busy) {
    this.#busy += busy ? 1 : -1;
    const say = () => (this.#element.dataset.busy = String(this.#busy > 0));
    if (busy) say();
    else requestAnimationFrame(say);
  }

  /**
   * @param {Point | null} place
   * @param {boolean} spoken
   */
  #point(place, spoken) {
    for (const pane of this.panes) pane.pointed = place;
    const text = place ? this.#read(place) : HINT;
    this.#readout.textContent = text;
    if (spoken) this.#speak(text);
  }

  /** @param {Point} place */
  #read(place) {
    const where = this.#grid?.crs ? ` (${this.#grid.crs})` : "";
    const values = this.panes.map((pane) => [pane.title, pane.read(place)]);
    const known = values.filter(([, value]) => value !== null);
    const said = known.map(([title, value]) => (known.length > 1 ? `${title}: ${value}` : value));
    const at = `${fixed(place.x, 1)} m east, ${fixed(place.y, 1)} m north${where}`;
    return [at, ...(said.length ? said : ["outside the map"])].join(" · ");
  }
}

/**
 * Shows one thing in a place, or hides the place; what is there already is left alone.
 *
 * @param {HTMLElement} place
 * @param {Node | null} content
 */
function keep(place, content) {
  if (content !== place.firstChild) fill(place, content);
  place.hidden = !content;
}
