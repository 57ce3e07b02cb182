/** The panes that are shown as one picture file. */

/** @import {Pane} from "./pane.js" */

import { h } from "./dom.js";

const MARGIN = 16;
const TITLE = 26;

/**
 * @param {Pane[]} panes
 * @param {string} heading
 * @param {HTMLElement} themed  whose colours the picture takes
 * @returns {Promise<Blob>}
 */
export async function picture(panes, heading, themed) {
  const ratio = window.devicePixelRatio || 1;
  const tall = Math.max(...panes.map((pane) => heightOf(pane)));
  const widths = panes.map((pane) => pane.canvas.clientWidth + MARGIN);
  const canvas = h("canvas");
  canvas.width = (MARGIN + widths.reduce((sum, width) => sum + width, 0)) * ratio;
  canvas.height = (2 * MARGIN + 2 * TITLE + tall) * ratio;
  const context = canvas.getContext("2d");
  if (!context) throw new Error("This browser cannot draw pictures");
  const { color, backgroundColor } = getComputedStyle(themed);
  context.scale(ratio, ratio);
  context.fillStyle = backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = color;
  context.font = "600 15px system-ui, sans-serif";
  context.fillText(heading, MARGIN, MARGIN + 12);
  let left = MARGIN;
  for (const [i, pane] of panes.entries()) {
    context.font = "600 13px system-ui, sans-serif";
    context.fillText(pane.title, left, MARGIN + TITLE + 12);
    let top = MARGIN + 2 * TITLE;
    for (const part of pane.pictures) {
      context.drawImage(part, left, top, part.clientWidth, part.clientHeight);
      top += part.clientHeight;
    }
    left += widths[i] ?? 0;
  }
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The picture is too large"))));
  });
}

/** @param {Pane} pane */
function heightOf(pane) {
  return pane.pictures.reduce((sum, part) => sum + part.clientHeight, 0);
}

/**
 * Hands a file to the reader.
 *
 * @param {Blob} blob
 * @param {string} name
 */
export function save(blob, name) {
  const href = URL.createObjectURL(blob);
  h("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10_000);
}
