/** Pointers, wheels and keys on a pane: pan, zoom, point, click and drag. */

/** @import {Pane} from "./pane.js" */
/** @import {Point, Viewport} from "./viewport.js" */
/** @import {Mark} from "./marks.js" */

/**
 * @typedef {object} Hands
 * @property {(place: Point | null, spoken: boolean) => void} point
 * @property {(place: Point, mark: Mark | undefined) => void} click
 * @property {(mark: Mark, place: Point) => void} drag
 * @property {() => void} drop
 */

const STILL = 4;
const WHEEL = 0.0015;
const KEY_ZOOM = 1.5;

export class PaneInput {
  /** @type {Map<number, Point>} */
  #pointers = new Map();
  /** @type {Point | null} */
  #start = null;
  /** @type {Mark | undefined} */
  #held;
  #pane;
  #viewport;
  #hands;

  /**
   * @param {Pane} pane
   * @param {Viewport} viewport
   * @param {Hands} hands
   */
  constructor(pane, viewport, hands) {
    this.#pane = pane;
    this.#viewport = viewport;
    this.#hands = hands;
    const { canvas } = pane;
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerup", (event) => this.#up(event));
    canvas.addEventListener("pointercancel", (event) => this.#leave(event));
    canvas.addEventListener("pointerleave", () => hands.point(null, false));
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("blur", () => hands.point(null, false));
    canvas.addEventListener("touchstart", (event) => this.#touch(event), { passive: false });
  }

  /** @param {PointerEvent} event */
  #down(event) {
    const at = pixel(event);
    this.#pane.canvas.setPointerCapture(event.pointerId);
    this.#pointers.set(event.pointerId, at);
    const alone = this.#pointers.size === 1;
    const mark = alone ? this.#pane.markAt(at) : undefined;
    this.#start = alone ? at : null;
    this.#held = mark?.draggable ? mark : undefined;
  }

  /** @param {PointerEvent} event */
  #move(event) {
    const at = pixel(event);
    const before = this.#pointers.get(event.pointerId);
    this.#hands.point(this.#toMap(at), false);
    if (!before) {
      this.#pane.canvas.dataset.over = this.#pane.markAt(at) ? "mark" : "map";
      return;
    }
    if (this.#pointers.size === 2) this.#pinch(event.pointerId, before, at);
    else if (this.#start && distance(this.#start, at) < STILL) return;
    else this.#dragOrPan(before, at);
    this.#pointers.set(event.pointerId, at);
  }

  /**
   * @param {Point} before
   * @param {Point} at
   */
  #dragOrPan(before, at) {
    this.#start = null;
    if (this.#held) this.#hands.drag(this.#held, this.#toMap(at));
    else this.#viewport.pan(at.x - before.x, at.y - before.y, this.#pane.box);
  }

  /**
   * @param {number} moved
   * @param {Point} before
   * @param {Point} at
   */
  #pinch(moved, before, at) {
    const other = [...this.#pointers].find(([id]) => id !== moved)?.[1];
    if (!other) return;
    const factor = distance(other, at) / Math.max(1, distance(other, before));
    const middle = { x: (other.x + at.x) / 2, y: (other.y + at.y) / 2 };
    this.#viewport.zoomAt(factor, middle, this.#pane.box);
    this.#viewport.pan((at.x - before.x) / 2, (at.y - before.y) / 2, this.#pane.box);
  }

  /** @param {PointerEvent} event */
  #up(event) {
    const at = pixel(event);
    if (this.#start) this.#hands.click(this.#toMap(at), this.#pane.markAt(at));
    else if (this.#held) this.#hands.drop();
    this.#leave(event);
  }

  /** @param {PointerEvent} event */
  #leave(event) {
    this.#pointers.delete(event.pointerId);
    this.#start = null;
    this.#held = undefined;
  }

  /** @param {WheelEvent} event */
  #wheel(event) {
    event.preventDefault();
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 20 : 1;
    const factor = Math.exp(-event.deltaY * lines * WHEEL);
    this.#viewport.zoomAt(factor, pixel(event), this.#pane.box);
  }

  /**
   * A finger on a mark drags it; elsewhere on a whole map it may scroll the page.
   *
   * @param {TouchEvent} event
   */
  #touch(event) {
    const touch = event.touches[0];
    if (!touch) return;
    const { left, top } = this.#pane.canvas.getBoundingClientRect();
    const mark = this.#pane.markAt({ x: touch.clientX - left, y: touch.clientY - top });
    if (mark?.draggable) event.preventDefault();
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const stride = event.shiftKey ? 10 : 1;
    /** @type {Record<string, () => void>} */
    const actions = {
      ArrowLeft: () => this.#step(-stride, 0),
      ArrowRight: () => this.#step(stride, 0),
      ArrowUp: () => this.#step(0, stride),
      ArrowDown: () => this.#step(0, -stride),
      "+": () => this.#viewport.zoomBy(KEY_ZOOM),
      "=": () => this.#viewport.zoomBy(KEY_ZOOM),
      "-": () => this.#viewport.zoomBy(1 / KEY_ZOOM),
      0: () => this.#viewport.reset(),
      Enter: () => this.#hands.click(this.#cursor(), undefined),
      Escape: () => this.#hands.point(null, false),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  /** Where the keyboard points: at first at the middle of what is shown. */
  #cursor() {
    const { box, pointed } = this.#pane;
    const middle = { x: box.left + box.width / 2, y: box.top + box.height / 2 };
    return pointed ?? this.#toMap(middle);
  }

  /**
   * @param {number} columns
   * @param {number} rows
   */
  #step(columns, rows) {
    const grid = this.#pane.layer?.grid;
    if (!grid) return;
    const from = this.#cursor();
    const place = {
      x: centre(from.x, grid.west, grid.cell_size, grid.columns, columns),
      y: centre(from.y, grid.south, grid.cell_size, grid.rows, rows),
    };
    this.#viewport.reveal(place, this.#pane.box);
    this.#hands.point(place, true);
  }

  /** @param {Point} at */
  #toMap(at) {
    return this.#viewport.toMap(at, this.#pane.box);
  }
}

/**
 * The middle of the cell some steps from a coordinate.
 *
 * @param {number} from
 * @param {number} origin
 * @param {number} size
 * @param {number} count
 * @param {number} steps
 */
function centre(from, origin, size, count, steps) {
  const cell = Math.floor((from - origin) / size) + steps;
  return origin + (Math.min(count - 1, Math.max(0, cell)) + 0.5) * size;
}

/**
 * @param {MouseEvent} event
 * @returns {Point}
 */
function pixel(event) {
  return { x: event.offsetX, y: event.offsetY };
}

/**
 * @param {Point} a
 * @param {Point} b
 */
function distance(a, b) {
  return Math.hypot(a.x - b.x, a.y - b.y);
}
