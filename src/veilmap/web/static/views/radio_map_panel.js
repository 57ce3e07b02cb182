/** The controls of the radio map. */

/** @import {LayerInfo, Station} from "../types.js" */
/** @import {Context} from "../context.js" */

import { PLACED } from "../base_station.js";
import { noteList, section } from "../context.js";
import { action, choice, evenStops, slider, toggle } from "../controls.js";
import { fill, h } from "../dom.js";
import { fixed } from "../numbers.js";
import { sentence } from "../words.js";

/**
 * @typedef {object} Wishes
 * @property {(station: Station) => void} station
 * @property {(z: number) => void} height
 * @property {(altitude: number) => void} altitude
 * @property {(layer: string) => void} layer
 * @property {(compare: boolean) => void} compare
 * @property {() => Promise<void>} savePicture
 */

const HEIGHTS = [...evenStops(1, 60, 1), ...evenStops(65, 150, 5)];
const ALTITUDES = [...evenStops(0.5, 10, 0.5), ...evenStops(11, 60, 1)];

export class RadioMapPanel {
  #layer;
  #compare;
  #station;
  #height;
  #altitude;
  #where = h("p", { class: "figures" });
  #belongs = h("fieldset", { class: "plain stack" });
  #tif = h("a", { class: "button", download: "", testid: "download-tif" }, "GeoTIFF");
  #notes = h("div");
  /** @type {Station} */
  #shown = { id: PLACED, x: 0, y: 0, z: 0, error_m: null };

  /**
   * @param {Context} context
   * @param {Wishes} wishes
   */
  constructor({ run, panel }, wishes) {
    this.#layer = choice({
      label: "Show",
      testid: "layer",
      choices: run.layers.map(({ name, title }) => ({ value: name, text: title })),
      value: "",
      change: wishes.layer,
    });
    this.#compare = toggle({
      label: "Compare with the truth",
      testid: "compare",
      on: false,
      change: wishes.compare,
    });
    this.#station = choice({
      label: "Base station",
      testid: "station",
      choices: [
        { value: PLACED, text: "A new one, placed on the map" },
        ...run.stations.map(({ id }) => ({ value: id, text: id })),
      ],
      value: PLACED,
      change: (id) =>
        wishes.station(run.stations.find((one) => one.id === id) ?? { ...this.#shown, id: PLACED }),
    });
    this.#height = slider({
      label: "Its height",
      testid: "station-height",
      stops: HEIGHTS,
      value: 25,
      unit: "m",
      change: wishes.height,
    });
    this.#altitude = slider({
      label: "Receivers’ altitude",
      testid: "altitude",
      stops: ALTITUDES,
      value: 1.5,
      unit: "m",
      change: wishes.altitude,
    });
    fill(this.#belongs, this.#station.element, this.#where, this.#height.element);
    const png = action("PNG", wishes.savePicture, { testid: "download-png" });
    fill(
      panel,
      section("Layer", this.#layer.element, this.#compare.element, this.#altitude.element),
      section("Base station", this.#belongs),
      section("Download", h("div", { class: "buttons" }, this.#tif, png)),
      section("About this map", h("p", {}, sentence(run.promise)), this.#notes),
    );
  }

  /**
   * @param {LayerInfo} layer
   * @param {Station} station
   * @param {number} altitude
   * @param {boolean} comparing
   * @param {string} tif
   */
  show(layer, station, altitude, comparing, tif) {
    this.#shown = station;
    this.#layer.select.value = layer.name;
    this.#compare.button.disabled = !layer.comparable;
    this.#compare.button.title = layer.comparable
      ? ""
      : "The truth of this layer is not known here";
    this.#compare.button.setAttribute("aria-checked", String(comparing));
    this.#station.select.value = station.id;
    this.#height.set(station.z);
    this.#altitude.set(altitude);
    this.#belongs.disabled = !layer.per_station;
    const at = `at ${fixed(station.x)} m east, ${fixed(station.y)} m north`;
    const how = layer.placeable
      ? "Click the map to place it, drag it to move it."
      : "A new one has no such layer.";
    this.#where.textContent = layer.per_station
      ? `${at}. ${how}`
      : "This layer is of the city, not of one base station.";
    this.#tif.href = tif;
    this.#tif.classList.toggle("disabled", layer.why_not !== null);
  }

  /** @param {string[]} notes */
  notes(notes) {
    fill(this.#notes, noteList(notes));
  }
}
