/** What the address after "#" keeps, so that a link reopens the same thing. */

/**
 * Numbers that are null stand for the run's own value.
 *
 * @typedef {object} Settings
 * @property {string} run
 * @property {string} view
 * @property {string} layer
 * @property {boolean} compare
 * @property {string} station
 * @property {number | null} x
 * @property {number | null} y
 * @property {number | null} z
 * @property {number | null} altitude
 * @property {string} user
 * @property {number | null} round
 * @property {number | null} mu
 * @property {number | null} rho
 * @property {number | null} nu
 * @property {number | null} clip
 * @property {string} sees  "uploads" or "sums"; nothing is what the run's own server sees
 */

/** @type {Readonly<Settings>} */
const NOTHING_SAID = {
  run: "",
  view: "map",
  layer: "gain",
  compare: false,
  station: "",
  x: null,
  y: null,
  z: null,
  altitude: null,
  user: "",
  round: null,
  mu: null,
  rho: null,
  nu: null,
  clip: null,
  sees: "",
};

const PAUSE = 150;

export class Address {
  settings = parse(location.hash);
  #timer = 0;

  /** @param {() => void} changed  called where the reader goes back, or edits the address */
  constructor(changed) {
    addEventListener("popstate", () => {
      clearTimeout(this.#timer);
      this.settings = parse(location.hash);
      changed();
    });
  }

  /**
   * Browsers limit how often an address may change, and a drag changes it in every frame.
   *
   * @param {Partial<Settings>} changes
   */
  set(changes) {
    this.settings = { ...this.settings, ...changes };
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => history.replaceState(null, "", write(this.settings)), PAUSE);
  }

  /**
   * The same, as a step that the back button takes back.
   *
   * @param {Partial<Settings>} changes
   */
  go(changes) {
    clearTimeout(this.#timer);
    history.replaceState(null, "", write(this.settings));
    this.settings = { ...this.settings, ...changes };
    history.pushState(null, "", write(this.settings));
  }
}

/**
 * @param {string} hash
 * @returns {Settings}
 */
export function parse(hash) {
  const said = new URLSearchParams(hash.replace(/^#/, ""));
  const entries = Object.entries(NOTHING_SAID).map(([name, usual]) => {
    const text = said.get(name);
    if (text === null) return [name, usual];
    if (typeof usual === "boolean") return [name, text === "1"];
    if (typeof usual === "string") return [name, text];
    return [name, numberIn(text)];
  });
  return Object.fromEntries(entries);
}

/** @param {Settings} settings */
export function write(settings) {
  const said = new URLSearchParams();
  for (const [name, value] of Object.entries(settings)) {
    if (value === NOTHING_SAID[/** @type {keyof Settings} */ (name)]) continue;
    said.set(name, value === true ? "1" : value === Infinity ? "inf" : String(value));
  }
  return `#${said}`;
}

/** @param {string} text */
function numberIn(text) {
  if (text === "inf") return Infinity;
  const value = Number(text);
  return text.trim() && Number.isFinite(value) ? value : null;
}
