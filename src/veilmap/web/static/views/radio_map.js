/** The radio map: place a base station anywhere and see how well the city hears it. */

/** @import {LayerHeader, LayerInfo, Station} from "../types.js" */
/** @import {Pack} from "../pack.js" */
/** @import {Context} from "../context.js" */
/** @import {Mark} from "../marks.js" */
/** @import {Palette, ScaleName} from "../colours.js" */

import { getLayer, post, runPath } from "../api.js";
import { chosenStation, inAddress, inQuery, PLACED, stationMarks } from "../base_station.js";
import { categories, ramp } from "../colours.js";
import { flightOf, footprintsOf } from "../context.js";
import { action } from "../controls.js";
import { h } from "../dom.js";
import { progressInWords, underWay } from "../live.js";
import { picture, save } from "../picture.js";
import { sentence } from "../words.js";
import { RadioMapPanel } from "./radio_map_panel.js";

/** @typedef {"learned" | "true" | "error"} Of */
/** @typedef {Pack<LayerHeader>} LayerPack */

/** @type {Record<LayerInfo["name"], ScaleName>} */
const SCALE_OF = {
  gain: "viridis",
  los: "grey",
  "best-server": "viridis",
  heights: "cividis",
  uncertainty: "inferno",
};
const USUAL_ALTITUDE = 1.5;
const VALUES = "values";

/** @param {Context} context */
export function openRadioMap(context) {
  new RadioMap(context);
}

class RadioMap {
  #context;
  #flight;
  #panel;

  /** @param {Context} context */
  constructor(context) {
    this.#context = context;
    this.#flight = flightOf(context, (signal) => this.#fetch(signal));
    this.#panel = new RadioMapPanel(context, {
      station: (station) => this.#place(station, "now"),
      height: (z) => this.#place({ ...this.#station, id: PLACED, z }, "soon"),
      altitude: (altitude) => {
        context.address.set({ altitude });
        this.#flight.ask();
      },
      layer: (layer) => this.#change({ layer }),
      compare: (compare) => this.#change({ compare }),
      savePicture: () => this.#savePicture(),
    });
    context.stage.tools = {
      click: (place, mark) => this.#click(place, mark),
      drag: (_, place) => this.#place({ ...this.#station, ...place, id: PLACED }, "soon"),
      drop: () => this.#flight.ask(),
    };
    context.live.addEventListener("change", () => this.#followReplicas(), {
      signal: context.signal,
    });
    this.#show();
  }

  get #station() {
    const { address, run } = this.#context;
    const nowhereNew = this.#layer.placeable ? {} : { x: null, y: null };
    return chosenStation({ ...address.settings, ...nowhereNew }, run);
  }

  /** @returns {LayerInfo} */
  get #layer() {
    const { run, address } = this.#context;
    const found = run.layers.find(({ name }) => name === address.settings.layer) ?? run.layers[0];
    if (!found) throw new Error("The run has no layers");
    return found;
  }

  get #comparing() {
    return this.#context.address.settings.compare && this.#layer.comparable;
  }

  get #altitude() {
    return this.#context.address.settings.altitude ?? USUAL_ALTITUDE;
  }

  /** @param {Partial<import("../address.js").Settings>} changes */
  #change(changes) {
    this.#context.address.set(changes);
    this.#show();
  }

  /** Arranges panes for the chosen layer and asks for it. */
  #show() {
    const { stage } = this.#context;
    const { title, why_not } = this.#layer;
    /** @type {Of[]} */
    const shown = this.#comparing ? ["learned", "true", "error"] : ["learned"];
    stage.arrange(shown.map((of) => ({ name: of, title: `${title}, ${of}` })));
    this.#refreshPanel();
    if (why_not !== null) {
      stage.notice(this.#whyNot(why_not));
      return;
    }
    if (!stage.panes.some((pane) => pane.layer)) stage.notice("Loading the map …", "loading");
    this.#flight.askNow();
  }

  #refreshPanel() {
    const tif = runPath(this.#context.run.id, "layer.tif", this.#query("learned"));
    this.#panel.show(this.#layer, this.#station, this.#altitude, this.#comparing, tif);
  }

  /** @param {Of} of */
  #query(of) {
    const { name, per_station } = this.#layer;
    const station = per_station ? inQuery(this.#station) : {};
    return { layer: name, of, ...station, altitude: this.#altitude };
  }

  /** @param {AbortSignal} signal */
  async #fetch(signal) {
    const { run, stage } = this.#context;
    const layer = this.#layer;
    if (layer.why_not !== null) return;
    const station = this.#station;
    const shown = /** @type {Of[]} */ (stage.panes.map((pane) => pane.name));
    const [footprints, ...packs] = await Promise.all([
      footprintsOf(run, signal),
      ...shown.map((of) => getLayer(run.id, this.#query(of), signal)),
    ]);
    if (signal.aborted) return;
    const palettes = this.#palettes(layer, shown, packs);
    const marks = stationMarks(run.stations, layer.per_station ? station : null);
    for (const [i, of] of shown.entries()) {
      const [pack, palette] = [packs[i], palettes[i]];
      const values = pack?.arrays.get(VALUES);
      if (!pack || !values || !palette) continue;
      const { grid, how } = pack.header;
      stage.paint(of, { values, grid, how, palette }, { marks, footprints });
    }
    this.#panel.notes([...new Set(packs.flatMap(({ header }) => header.notes))]);
    stage.notice(null);
  }

  /**
   * Learned and true share their colours; the error's are balanced around nothing.
   *
   * @param {LayerInfo} layer
   * @param {Of[]} shown
   * @param {LayerPack[]} packs
   * @returns {Palette[]}
   */
  #palettes({ name }, shown, packs) {
    const { stations } = this.#context.run;
    const headers = packs.map(({ header }) => header);
    const alike = headers.filter((_, i) => shown[i] !== "error");
    const low = Math.min(...alike.map((header) => header.low));
    const high = Math.max(...alike.map((header) => header.high));
    return headers.map((header, i) => {
      const values = packs[i]?.arrays.get(VALUES);
      if (header.categories && values)
        return categories(
          stations.map(({ id }) => id),
          values,
          header.grid,
        );
      const unit = header.unit === "1" ? "" : header.unit; // a pure number
      if (shown[i] !== "error") return ramp({ scale: SCALE_OF[name], low, high, unit });
      const most = Math.max(Math.abs(header.low), Math.abs(header.high)) || 1;
      return ramp({ scale: "diverging", low: -most, high: most, unit });
    });
  }

  /**
   * @param {import("../viewport.js").Point} place
   * @param {Mark | undefined} mark
   */
  #click(place, mark) {
    if (!this.#layer.per_station) return;
    const known = this.#context.run.stations.find(({ id }) => id === mark?.id);
    const { west, east, south, north } = this.#context.run.grid;
    const outside = place.x < west || place.x > east || place.y < south || place.y > north;
    if (known) this.#place(known, "now");
    else if (!outside) this.#place({ ...place, id: PLACED, z: this.#station.z, error_m: null }, "now");
  }

  /**
   * The mark follows at once; the layer comes when the server has it.
   *
   * @param {Station} station
   * @param {"now" | "soon"} when
   */
  #place(station, when) {
    const { address, run, stage } = this.#context;
    if (station.id !== PLACED || this.#layer.placeable) address.set(inAddress(station));
    this.#refreshPanel();
    for (const pane of stage.panes) pane.marks = stationMarks(run.stations, this.#station);
    stage.redraw();
    if (when === "now") this.#flight.askNow();
    else this.#flight.ask();
  }

  /** @param {string} reason */
  #whyNot(reason) {
    const { run, live } = this.#context;
    const job = live.job(run.id, "replicas");
    const begin = async () => {
      await post(runPath(run.id, "replicas"));
      await live.refresh();
      this.#followReplicas();
    };
    return h(
      "div",
      { class: "stack" },
      h("h2", {}, this.#layer.title),
      h("p", {}, sentence(reason)),
      job && underWay(job) && h("p", {}, `Replicas: ${progressInWords(job)}.`),
      job?.state === "failed" &&
        h("p", { class: "problem" }, job.problem ?? "The replicas failed."),
      this.#layer.name === "uncertainty" && !underWay(job) && action("Train replicas", begin),
    );
  }

  #followReplicas() {
    const { name, why_not } = this.#layer;
    if (name !== "uncertainty" || why_not === null) return;
    const job = this.#context.live.job(this.#context.run.id, "replicas");
    if (job?.state === "done") this.#context.reopen();
    else this.#context.stage.notice(this.#whyNot(why_not));
  }

  async #savePicture() {
    const { stage, run, panel } = this.#context;
    const heading = `${run.name}: ${this.#layer.title} (${run.label})`;
    save(await picture(stage.panes, heading, panel), `${run.name}-${this.#layer.name}.png`);
  }
}
