/** The part of the map that all panes show: where its middle is, and how far it is zoomed in. */

/** @typedef {{west: number, east: number, south: number, north: number}} Bounds */
/** @typedef {{left: number, top: number, width: number, height: number}} Box */
/** @typedef {{x: number, y: number}} Point */

const MOST = 64;
const LEAST = 0.5;

export class Viewport extends EventTarget {
  /** @type {Bounds} */
  bounds = { west: 0, east: 1, south: 0, north: 1 };
  /** @type {Point} */
  #middle = { x: 0.5, y: 0.5 };
  #zoom = 1;

  /**
   * Another map begins as a whole; the same one stays as it is.
   *
   * @param {Bounds} bounds
   */
  setBounds({ west, east, south, north }) {
    const same =
      west === this.bounds.west &&
      east === this.bounds.east &&
      south === this.bounds.south &&
      north === this.bounds.north;
    if (same) return;
    this.bounds = { west, east, south, north };
    this.reset();
  }

  reset() {
    const { west, east, south, north } = this.bounds;
    this.#moveTo({ x: (west + east) / 2, y: (south + north) / 2 }, 1);
  }

  /** How many times larger than as a whole the map is shown. */
  get zoom() {
    return this.#zoom;
  }

  /** Whether all of the map is in sight. */
  get whole() {
    return this.#zoom <= 1;
  }

  /**
   * Pixels in a metre, in a pane with this box.
   *
   * @param {Box} box
   */
  scale(box) {
    const { west, east, south, north } = this.bounds;
    return this.#zoom * Math.min(box.width / (east - west), box.height / (north - south));
  }

  /**
   * @param {Point} place  in metres
   * @param {Box} box
   * @returns {Point}  in pixels
   */
  toScreen({ x, y }, box) {
    const scale = this.scale(box);
    return {
      x: box.left + box.width / 2 + (x - this.#middle.x) * scale,
      y: box.top + box.height / 2 - (y - this.#middle.y) * scale,
    };
  }

  /**
   * @param {Point} pixel
   * @param {Box} box
   * @returns {Point}  in metres
   */
  toMap({ x, y }, box) {
    const scale = this.scale(box);
    return {
      x: this.#middle.x + (x - box.left - box.width / 2) / scale,
      y: this.#middle.y - (y - box.top - box.height / 2) / scale,
    };
  }

  /**
   * @param {number} dx  in pixels
   * @param {number} dy
   * @param {Box} box
   */
  pan(dx, dy, box) {
    const scale = this.scale(box);
    const { x, y } = this.#middle;
    this.#moveTo({ x: x - dx / scale, y: y + dy / scale }, this.#zoom);
  }

  /**
   * Zooms so that what is under a pixel stays there.
   *
   * @param {number} factor
   * @param {Point} pixel
   * @param {Box} box
   */
  zoomAt(factor, pixel, box) {
    const held = this.toMap(pixel, box);
    const zoom = Math.min(MOST, Math.max(LEAST, this.#zoom * factor));
    const keep = this.#zoom / zoom;
    this.#moveTo(
      {
        x: held.x + (this.#middle.x - held.x) * keep,
        y: held.y + (this.#middle.y - held.y) * keep,
      },
      zoom,
    );
  }

  /** @param {number} factor */
  zoomBy(factor) {
    this.#moveTo(this.#middle, Math.min(MOST, Math.max(LEAST, this.#zoom * factor)));
  }

  /**
   * Moves just far enough that a place is in sight.
   *
   * @param {Point} place
   * @param {Box} box
   */
  reveal(place, box) {
    const { x, y } = this.toScreen(place, box);
    const beyond = (
      /** @type {number} */ at,
      /** @type {number} */ low,
      /** @type {number} */ size,
    ) => Math.max(0, low + 12 - at) - Math.max(0, at - (low + size - 12));
    const [dx, dy] = [beyond(x, box.left, box.width), beyond(y, box.top, box.height)];
    if (dx || dy) this.pan(dx, dy, box);
  }

  /**
   * The middle stays on the map, so that nobody loses it.
   *
   * @param {Point} middle
   * @param {number} zoom
   */
  #moveTo({ x, y }, zoom) {
    const { west, east, south, north } = this.bounds;
    this.#zoom = zoom;
    this.#middle = {
      x: Math.min(east, Math.max(west, x)),
      y: Math.min(north, Math.max(south, y)),
    };
    this.dispatchEvent(new Event("change"));
  }
}
