/** Builds elements without markup, so that text stays text whatever a server sends. */

/** @typedef {string | number | Node | null | undefined | false} Child */
/** @typedef {Record<string, unknown>} Attributes */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An HTML element. Attributes that begin with "on" listen; false, null and undefined leave out.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, attributes = {}, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

/**
 * An SVG element.
 *
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svg(tag, attributes = {}, ...children) {
  return dress(document.createElementNS(SVG, tag), attributes, children);
}

/**
 * @template {Element} T
 * @param {T} element
 * @param {Attributes} attributes
 * @param {Child[]} children
 */
function dress(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(
        name === "testid" ? "data-testid" : name,
        value === true ? "" : String(value),
      );
    }
  }
  fill(element, ...children);
  return element;
}

/**
 * Puts children in place of those that are there.
 *
 * @param {Element} element
 * @param {...Child} children
 */
export function fill(element, ...children) {
  const shown = children.filter(
    (child) => child !== null && child !== undefined && child !== false,
  );
  element.replaceChildren(...shown.map((child) => (child instanceof Node ? child : String(child))));
}

/**
 * An element of index.html.
 *
 * @template {Element} T
 * @param {string} id
 * @param {new () => T} kind
 * @returns {T}
 */
export function byId(id, kind) {
  const element = document.getElementById(id);
  if (!(element instanceof kind)) throw new Error(`index.html has no ${kind.name} #${id}`);
  return element;
}

/**
 * Calls at most once in every `milliseconds`, and always with the newest value.
 *
 * @template T
 * @param {(value: T) => void} act
 * @param {number} milliseconds
 * @returns {(value: T) => void}
 */
export function throttled(act, milliseconds) {
  /** @type {number | undefined} */
  let timer;
  let last = -Infinity;
  return (value) => {
    clearTimeout(timer);
    const wait = Math.max(0, last + milliseconds - performance.now());
    timer = setTimeout(() => {
      last = performance.now();
      act(value);
    }, wait);
  };
}

/**
 * A name such as "best server" as part of an attribute.
 *
 * @param {string} name
 */
export function dashed(name) {
  return name.replaceAll(/[^a-z0-9]+/gi, "-").toLowerCase();
}
