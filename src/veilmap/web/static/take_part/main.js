/**
 * A participant's page: everything is computed here, and two halves of a report leave.
 *
 *     table → readings → contribution → shares → (leader) masked numbers, (helper) seed
 */

/** @import {Contribution, Readings} from "./contribution.js" */
/** @import {Begun} from "./kept.js" */
/** @import {Measured} from "./readings.js" */
/** @import {Signatures} from "./receipts.js" */
/** @import {Shares} from "./report.js" */
/** @import {Task} from "./task.js" */
/** @import {Bytes} from "./bytes.js" */

import { byId, fill, h } from "../dom.js";
import { facts, footer, lead, moment } from "./about.js";
import { contribution } from "./contribution.js";
import { begun, forget, keep, noteTakenPart, tookPart } from "./kept.js";
import { drawMap } from "./pictures.js";
import { grouped, mapInWords, mapLegend, showHalves, summary } from "./previews.js";
import { Problem, lineOf } from "./problem.js";
import { measured } from "./readings.js";
import { counted, receiptOf, receiptShown } from "./receipts.js";
import { shared } from "./report.js";
import { credentialFor, sent } from "./sending.js";
import { readTable } from "./table.js";
import { fetchTask } from "./task.js";

const MOST_USERS = 2000; // in one table; a list of more helps nobody

/**
 * A report that is ready to be sent, and what was done of that.
 *
 * @typedef {object} Prepared
 * @property {Readings & {lines: number[]}} readings
 * @property {Contribution} own
 * @property {string} code  of the invitation that it is for
 * @property {Begun} begun
 * @property {Shares} shares
 * @property {Bytes} [credential]
 */

const page = {
  notice: byId("notice", HTMLDivElement),
  choose: byId("choose", HTMLElement),
  drop: byId("drop", HTMLLabelElement),
  file: byId("file", HTMLInputElement),
  fileName: byId("file-name", HTMLElement),
  fileProblem: byId("file-problem", HTMLElement),
  reading: byId("reading", HTMLElement),
  who: byId("who", HTMLElement),
  user: byId("user", HTMLSelectElement),
  stays: byId("stays", HTMLElement),
  map: byId("map", HTMLCanvasElement),
  leaves: byId("leaves", HTMLElement),
  send: byId("send", HTMLElement),
  form: byId("form", HTMLFormElement),
  code: byId("code", HTMLInputElement),
  go: byId("go", HTMLButtonElement),
  progress: byId("progress", HTMLElement),
  bar: byId("bar", HTMLProgressElement),
  doing: byId("doing", HTMLElement),
  sendProblem: byId("send-problem", HTMLElement),
  result: byId("result", HTMLElement),
};

/** @type {Measured | null} */
let table = null;
/** @type {Prepared | null} */
let prepared = null;
/** Counts what was chosen: what is computed of an earlier choice is not shown any more. */
let choice = 0;

await start();

async function start() {
  try {
    if (!globalThis.crypto?.subtle) {
      throw new Problem(
        "Browsers give out what this page computes with only on https:// addresses. Open the page" +
          " at its https:// address, or take part with the command veilmap contribute.",
      );
    }
    const task = await fetchTask();
    introduce(task);
    listen(task);
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    byId("lead", HTMLElement).hidden = true;
    notice("problem", lineOf(error));
    document.documentElement.dataset.ready = "problem";
  }
}

/** @param {Task} task */
function introduce(task) {
  const title = `Take part in the radio survey ${task.survey.id}`;
  document.title = `${title} – veilmap`;
  fill(byId("title", HTMLElement), title);
  fill(byId("lead", HTMLElement), lead(task));
  fill(byId("facts", HTMLElement), ...facts(task));
  fill(byId("task", HTMLElement), ...footer(task));
  fill(byId("map-legend", HTMLElement), ...mapLegend());
  byId("invitation", HTMLElement).hidden = task.admission.type !== "Invitations";
  page.code.value = decodeURIComponent(location.hash.slice(1));
  byId("later", HTMLElement).hidden = false;
  const now = Date.now();
  page.choose.hidden = now >= Date.parse(task.closes);
  if (page.choose.hidden) {
    notice("over", `This survey is over since ${moment(task.closes)}. No more reports are taken.`);
  } else if (now < Date.parse(task.opens)) {
    notice("early", `Reports are taken from ${moment(task.opens)} on. You can look around before.`);
    page.go.disabled = true;
  } else if (tookPart(task.digest)) {
    notice(
      "again",
      "A report was sent from this browser to this survey already. One person takes part once: a" +
        " second report of yours would be counted too, and would weaken what is promised to you.",
    );
  }
}

/** @param {Task} task */
function listen(task) {
  page.file.addEventListener("change", () => {
    const file = page.file.files?.[0];
    if (file) void choose(task, file);
  });
  for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
    page.drop.addEventListener(name, (event) => {
      event.preventDefault();
      page.drop.classList.toggle("over", name === "dragenter" || name === "dragover");
    });
  }
  page.drop.addEventListener("drop", (event) => {
    const file = event.dataTransfer?.files[0];
    if (file && !page.file.disabled) void choose(task, file);
  });
  // A file that misses the field would replace the page.
  for (const name of ["dragover", "drop"]) {
    document.addEventListener(name, (event) => event.preventDefault());
  }
  page.user.addEventListener("change", () => void prepare(task, page.user.value));
  page.form.addEventListener("submit", (event) => {
    event.preventDefault();
    void takePart(task);
  });
  new ResizeObserver(() => redraw(task)).observe(page.map.parentElement ?? page.map);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw(task));
  listenForReceipt(task);
}

/** @param {Task} task */
function listenForReceipt(task) {
  const field = byId("receipt", HTMLInputElement);
  const answer = byId("counted", HTMLElement);
  field.addEventListener("change", async () => {
    const file = field.files?.[0];
    if (!file) return;
    fill(answer, "Asking both aggregators …");
    fill(answer, await counted(task, file).catch(lineOf));
    field.value = "";
  });
}

/**
 * @param {string} kind
 * @param {string} words
 */
function notice(kind, words) {
  page.notice.dataset.kind = kind;
  page.notice.hidden = false;
  fill(page.notice, words);
}

/**
 * Reads a file, and goes on if it is of one person.
 *
 * @param {Task} task
 * @param {File} file
 */
async function choose(task, file) {
  choice += 1;
  const mine = choice;
  [table, prepared] = [null, null];
  for (const part of [page.who, page.stays, page.leaves, page.send]) part.hidden = true;
  fill(page.fileName, file.name);
  fill(page.fileProblem);
  fill(page.reading, "Reading the table …");
  try {
    const found = measured(await readTable(file), task.survey, file.name);
    if (mine !== choice) return;
    table = found;
    fill(page.reading); // before a choice of whose readings makes this one an earlier one
    await ask(task, table, file.name);
  } catch (error) {
    if (mine === choice) fill(page.fileProblem, lineOf(error));
  } finally {
    page.file.value = ""; // so that the same file can be chosen again, corrected
    if (mine === choice) fill(page.reading);
  }
}

/**
 * Whose measurements to send, where the table has those of several people.
 *
 * @param {Task} task
 * @param {Measured} found
 * @param {string} name
 */
async function ask(task, { users }, name) {
  if (users.length > MOST_USERS) {
    throw new Problem(
      `${name} has the measurements of ${grouped(users.length)} people: choose a table of your own` +
        " measurements.",
    );
  }
  if (users.length === 1) {
    await prepare(task, users[0]?.id ?? "");
    return;
  }
  const first = h("option", { value: "", disabled: true, selected: true }, "Choose …");
  const options = users.map(({ id, rows }) =>
    h("option", { value: id }, `${id || "(no name)"}, ${grouped(rows)} readings`),
  );
  fill(page.user, first, ...options);
  page.who.hidden = false;
}

/**
 * Computes the report of one person, and shows what stays and what leaves.
 *
 * @param {Task} task
 * @param {string} user
 */
async function prepare(task, user) {
  if (!table) return;
  choice += 1;
  const mine = choice;
  fill(page.fileProblem);
  try {
    const readings = table.of(user);
    const own = contribution(task.survey, readings);
    const report = await made(task, readings, own);
    if (mine !== choice) return;
    prepared = report;
    show(task, report);
  } catch (error) {
    if (mine === choice) fill(page.fileProblem, lineOf(error));
  }
}

/**
 * @param {Task} task
 * @param {Prepared["readings"]} readings
 * @param {Contribution} own
 * @returns {Promise<Prepared>}
 */
async function made(task, readings, own) {
  const code = page.code.value.trim();
  const begunBefore = await begun(task.digest, code);
  const { id, secret } = begunBefore;
  const shares = await shared(own.vector, task.digestBytes, id, secret, task.proofs);
  return { readings, own, code, begun: begunBefore, shares };
}

/**
 * @param {Task} task
 * @param {Prepared} report
 */
function show(task, { readings, own, shares }) {
  const used = own.fates.includes("used");
  page.stays.hidden = false;
  page.leaves.hidden = page.send.hidden = !used;
  fill(byId("summary", HTMLElement), ...summary(own, readings.lines));
  page.map.setAttribute("aria-label", mapInWords(task, readings, own));
  redraw(task);
  fill(page.sendProblem);
  if (used) {
    showHalves(byId("halves", HTMLElement), task, shares, own);
    return;
  }
  fill(
    page.fileProblem,
    "None of these readings can be used, so there is nothing to send. The table below says why.",
  );
}

/** @param {Task} task */
function redraw(task) {
  if (prepared && !page.stays.hidden) {
    drawMap(page.map, task.survey, prepared.readings, prepared.own);
  }
}

/**
 * Sends the report; after a failure the same one is sent again.
 *
 * @param {Task} task
 */
async function takePart(task) {
  if (!prepared) return;
  const code = page.code.value.trim();
  if (task.admission.type === "Invitations" && code === "") {
    fill(page.sendProblem, "Enter the code of your invitation.");
    page.code.focus();
    return;
  }
  working(true);
  try {
    if (code !== prepared.code) {
      prepared = await made(task, prepared.readings, prepared.own);
      show(task, prepared);
    }
    finish(task, prepared, await sendBoth(task, prepared));
  } catch (error) {
    afterFailure(error, prepared);
  } finally {
    working(false);
  }
}

/**
 * @param {Task} task
 * @param {Prepared} report
 * @returns {Promise<Signatures>}
 */
async function sendBoth(task, report) {
  keep(report.begun);
  report.credential ??= await credentialFor(task, report.begun, report.code, told);
  // Both again after a failure: a half that was confirmed may have been deleted since, alone.
  const { shares, credential } = report;
  const leader = await sent(task, "leader", shares, credential, told);
  const helper = await sent(task, "helper", shares, credential, told);
  return { leader, helper };
}

/**
 * @param {Task} task
 * @param {Prepared} report
 * @param {Signatures} receipts
 */
function finish(task, { begun: own, shares }, receipts) {
  noteTakenPart(task.digest);
  forget(own);
  fill(page.result, ...receiptShown(task, receiptOf(task, shares, receipts)));
  page.form.hidden = true;
  page.result.hidden = false;
  page.choose.hidden = page.notice.hidden = true;
  page.result.focus();
}

/**
 * @param {unknown} error
 * @param {Prepared} report
 */
function afterFailure(error, report) {
  fill(page.sendProblem, lineOf(error));
  if (report.credential) fill(page.go, "Send the same report again");
}

/** @param {boolean} now */
function working(now) {
  page.progress.hidden = !now;
  for (const field of [page.file, page.user, page.code, page.go]) field.disabled = now;
  if (now) fill(page.sendProblem);
}

/**
 * @param {string} words
 * @param {number} [share]  of the work, where it can be told
 */
function told(words, share) {
  if (page.doing.textContent !== words) fill(page.doing, words);
  if (share === undefined) page.bar.removeAttribute("value");
  else page.bar.value = share;
}
