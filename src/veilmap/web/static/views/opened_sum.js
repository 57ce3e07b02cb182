/** What the server sees of a survey: one sum, with its noise, at every point. */

/** @import {AuditTable, SumHeader, SurveyDetail} from "../types.js" */
/** @import {Pack} from "../pack.js" */
/** @import {Context} from "../context.js" */

import { getSum } from "../api.js";
import { chosenStation, stationMarks } from "../base_station.js";
import { ramp } from "../colours.js";
import { flightOf, footprintsOf, noteList, section } from "../context.js";
import { choice } from "../controls.js";
import { fill, h } from "../dom.js";
import { table } from "../table.js";
import { sentence } from "../words.js";

const COUNTS = "counts";
const LENGTH = "length";
const PANES = [
  { name: COUNTS, title: "Counts: the opened sum, turned by the map" },
  { name: LENGTH, title: "Length of the opened sum" },
];
const MUCH = 30;
const UNIT = "contributions";
/** Marks are small: points lie under them. */
const CHOSEN_SIZE = 7;
const OTHER_SIZE = 2.5;

/**
 * @param {Context} context
 * @param {SurveyDetail} survey
 */
export function openOpenedSum(context, survey) {
  new OpenedSum(context, survey);
}

class OpenedSum {
  #context;
  #flight;
  #station;
  #summary = h("p", { class: "summary", testid: "summary", "aria-live": "polite" });
  #notes = h("div");

  /**
   * @param {Context} context
   * @param {SurveyDetail} survey
   */
  constructor(context, survey) {
    this.#context = context;
    this.#flight = flightOf(context, (signal) => this.#fetch(signal));
    const { run, stage, panel } = context;
    const after = survey.audit.length ? auditCard(survey.audit, run.study) : null;
    stage.arrange(PANES, { above: this.#summary, after });
    stage.notice("Reading what was opened …", "loading");
    stage.tools = { ...stage.tools, click: (_, mark) => this.#choose(mark?.id) };
    this.#station = choice({
      label: "Base station",
      testid: "sum-station",
      choices: run.stations.map(({ id }) => ({ value: id, text: id })),
      value: this.#chosen.id,
      change: (id) => this.#choose(id),
    });
    fill(
      panel,
      section("What was opened of", this.#station.element, this.#notes),
      section("What is promised", h("p", {}, sentence(run.promise))),
      survey.why_no_audit && section("Audit", h("p", {}, sentence(survey.why_no_audit))),
      section("The survey", factList(survey)),
    );
    this.#flight.ask();
  }

  /** One of the survey's: nothing was opened of a station that the reader has placed. */
  get #chosen() {
    const { run, address } = this.#context;
    return chosenStation({ ...address.settings, x: null, y: null }, run);
  }

  /** @param {string | undefined} id */
  #choose(id) {
    if (!this.#context.run.stations.some((station) => station.id === id)) return;
    this.#context.address.set({ station: id ?? "", x: null, y: null, z: null });
    this.#station.select.value = id ?? "";
    this.#flight.ask();
  }

  /** @param {AbortSignal} signal */
  async #fetch(signal) {
    const { run, stage } = this.#context;
    const [pack, footprints] = await Promise.all([
      getSum(run.id, { station: this.#chosen.id }, signal),
      footprintsOf(run, signal),
    ]);
    this.#paint(pack, footprints);
    this.#summary.textContent = pack.header.summary;
    fill(this.#notes, noteList(pack.header.notes));
    stage.notice(null);
  }

  /**
   * Counts are coloured around none, where the noise is.
   *
   * @param {Pack<SumHeader>} pack
   * @param {Path2D | null} footprints
   */
  #paint({ header, arrays }, footprints) {
    const { run, stage } = this.#context;
    const chosen = this.#chosen;
    const marks = stationMarks(run.stations, chosen).map((mark) => ({
      ...mark,
      size: mark.id === chosen.id ? CHOSEN_SIZE : OTHER_SIZE,
      draggable: false,
    }));
    for (const { name } of PANES) {
      const values = arrays.get(name);
      if (!values) continue;
      const high = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0) || 1;
      const palette =
        name === COUNTS
          ? ramp({ scale: "diverging", low: -high, high, unit: UNIT })
          : ramp({ scale: "cividis", low: 0, high, unit: UNIT });
      const { grid, how } = header;
      stage.paint(name, { values, grid, how, palette }, { marks, footprints });
    }
  }
}

/**
 * @param {AuditTable[]} tables
 * @param {string | null} study  words that mark what is not for publication
 */
function auditCard(tables, study) {
  return h(
    "section",
    { class: "findings across stack", testid: "survey-audit" },
    h("h2", {}, `${study ? `${study}: ` : ""}What attackers find`),
    ...tables.map(({ caption, columns, rows }) =>
      table({ caption, head: columns, rows: rows.map((cells) => cells.map(cell)) }),
    ),
  );
}

/**
 * Cells that say much take several lines.
 *
 * @param {string} words
 */
function cell(words) {
  return words.length > MUCH ? h("span", { class: "words" }, words) : words;
}

/** @param {SurveyDetail} survey */
function factList({ facts }) {
  const pairs = facts.flatMap(({ name, words }) => [h("dt", {}, name), h("dd", {}, words)]);
  return h("dl", { class: "facts" }, ...pairs);
}
