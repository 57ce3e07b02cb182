/** One map: a title, a canvas and a legend, over the viewport that all panes share. */

/** @import {Point, Viewport} from "./viewport.js" */
/** @import {Mark} from "./marks.js" */
/** @import {Palette} from "./colours.js" */
/** @import {Frame} from "./map_drawing.js" */
/** @import {GridInfo} from "./types.js" */

import { dashed, h } from "./dom.js";
import { drawLegend, LEGEND_HEIGHT, legendInWords } from "./legend.js";
import {
  axisWidth,
  cellImage,
  drawAxes,
  drawCells,
  drawCrosshair,
  drawFootprints,
  drawMarks,
  drawScaleBar,
} from "./map_drawing.js";
import { sizeOf } from "./marks.js";

const REACH = 5;

/**
 * What a pane shows.
 *
 * @typedef {object} Layer
 * @property {Float32Array} values
 * @property {GridInfo} grid  of the values
 * @property {string} how  what a value stands for, where cells are larger than the map's
 * @property {Palette} palette
 */

export class Pane {
  canvas;
  element;
  /** @type {Layer | null} */
  layer = null;
  /** @type {Mark[]} */
  marks = [];
  /** @type {Path2D | null} */
  footprints = null;
  /** @type {HTMLCanvasElement | null} */
  #cells = null;
  /**
   * All that stays as it is while only the pointer moves.
   *
   * @type {HTMLCanvasElement | null}
   */
  #still = null;
  /** @type {Point | null} */
  #pointed = null;
  #legend = h("canvas", { class: "legend", "aria-hidden": "true" });
  #legendWords = h("p", { class: "hidden" });
  #title = h("figcaption");
  #viewport;
  #drawing = 0;

  /**
   * @param {string} name
   * @param {string} title
   * @param {Viewport} viewport
   */
  constructor(name, title, viewport) {
    this.name = name;
    this.#viewport = viewport;
    this.canvas = h("canvas", {
      class: "map",
      tabindex: 0,
      role: "application",
      "aria-describedby": "map-help",
      testid: `canvas-${dashed(name)}`,
    });
    this.element = h(
      "figure",
      { class: "pane", testid: `pane-${dashed(name)}` },
      this.#title,
      this.canvas,
      this.#legend,
      this.#legendWords,
    );
    this.title = title;
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  get title() {
    return this.#title.textContent;
  }

  set title(title) {
    this.#title.textContent = title;
    this.canvas.setAttribute("aria-label", `Map: ${title}`);
  }

  /** @param {Layer} layer */
  show(layer) {
    this.layer = layer;
    this.#cells = cellImage(layer.values, layer.grid, layer.palette);
    this.#legendWords.textContent = legendInWords(layer.palette);
    this.draw();
  }

  /**
   * The value at a place in words; null where there is none.
   *
   * @param {Point} place
   */
  read({ x, y }) {
    if (!this.layer) return null;
    const { values, grid, palette, how } = this.layer;
    const column = Math.floor((x - grid.west) / grid.cell_size);
    const row = Math.floor((y - grid.south) / grid.cell_size);
    if (column < 0 || row < 0 || column >= grid.columns || row >= grid.rows) return null;
    const value = values[row * grid.columns + column] ?? Number.NaN;
    if (Number.isNaN(value)) return "no value";
    return `${palette.read(value)}${how && ` (${how})`}`;
  }

  /** The canvas without its axes, in CSS pixels. */
  get box() {
    const { clientWidth, clientHeight } = this.canvas;
    const left = axisWidth(contextOf(this.canvas), this.#viewport);
    const [top, right, bottom] = [4, 6, 22];
    return {
      left,
      top,
      width: Math.max(1, clientWidth - left - right),
      height: Math.max(1, clientHeight - top - bottom),
    };
  }

  /**
   * The mark that a pointer means.
   *
   * @param {Point} pixel
   */
  markAt({ x, y }) {
    const { box } = this;
    const beyond = (/** @type {Mark} */ mark) => {
      const at = this.#viewport.toScreen(mark, box);
      const size = sizeOf(mark, this.#viewport.zoom);
      // Small marks are many: between them there must be room to click.
      return Math.hypot(at.x - x, at.y - y) - size - Math.min(REACH, 2 * size);
    };
    const near = this.marks.filter((mark) => mark.id !== undefined && beyond(mark) < 0);
    return near.sort((a, b) => beyond(a) - beyond(b))[0];
  }

  /** The place that is read out. */
  get pointed() {
    return this.#pointed;
  }

  /** @param {Point | null} place */
  set pointed(place) {
    this.#pointed = place;
    this.#soon();
  }

  /** Draws everything anew with the next frame of the screen. */
  draw() {
    this.#still = null;
    this.#soon();
  }

  /** However often it is asked for, a frame is drawn once. */
  #soon() {
    if (this.#drawing) return;
    this.#drawing = requestAnimationFrame(() => {
      this.#drawing = 0;
      const whole = !this.#still;
      this.#drawMap();
      if (whole) this.#drawLegend();
      if (this.layer) document.documentElement.dataset.ready = "true";
    });
  }

  #drawMap() {
    const context = fitted(this.canvas, this.canvas);
    if (!context) return;
    this.#still ??= this.#drawStill();
    const { clientWidth, clientHeight } = this.canvas;
    context.drawImage(this.#still, 0, 0, clientWidth, clientHeight);
    if (!this.#pointed) return;
    const frame = this.#frame(context);
    within(frame, () => this.#pointed && drawCrosshair(frame, this.#pointed));
  }

  #drawStill() {
    const still = h("canvas");
    const context = fitted(still, this.canvas);
    if (!context) return still;
    const frame = this.#frame(context);
    within(frame, () => {
      drawCells(frame, this.#cells, this.layer?.grid ?? this.#viewport.bounds);
      if (this.footprints) drawFootprints(frame, this.footprints);
      drawScaleBar(frame);
      drawMarks(frame, this.marks);
    });
    drawAxes(frame);
    return still;
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @returns {Frame}
   */
  #frame(context) {
    const { color: ink, backgroundColor: ground } = getComputedStyle(this.canvas);
    return { context, viewport: this.#viewport, box: this.box, ink, ground };
  }

  #drawLegend() {
    this.#legend.style.height = `${LEGEND_HEIGHT}px`;
    const context = fitted(this.#legend, this.#legend);
    if (!context || !this.layer) return;
    const { left, width } = this.box;
    const { color: ink } = getComputedStyle(this.#legend);
    drawLegend({ context, left, width, ink }, this.layer.palette);
  }

  /** What a picture of this pane is made of, from top to bottom. */
  get pictures() {
    return [this.canvas, this.#legend];
  }
}

/**
 * Draws inside of the axes only.
 *
 * @param {Frame} frame
 * @param {() => void} paint
 */
function within({ context, box: { left, top, width, height } }, paint) {
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  paint();
  context.restore();
}

/**
 * A canvas with as many pixels as the screen has at a place; null while that is not shown.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {HTMLElement} place
 */
function fitted(canvas, { clientWidth, clientHeight }) {
  if (!clientWidth || !clientHeight) return null;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(clientWidth * ratio);
  canvas.height = Math.round(clientHeight * ratio);
  const context = contextOf(canvas);
  context.scale(ratio, ratio);
  return context;
}

/** @param {HTMLCanvasElement} canvas */
function contextOf(canvas) {
  const context = canvas.getContext("2d");
  if (!context) throw new Error("This browser cannot draw maps: it has no 2D canvas");
  return context;
}
