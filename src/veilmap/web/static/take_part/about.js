/** What the survey is, who adds it up, and what is promised: in words, before anything is chosen. */

/** @import {Task} from "./task.js" */

import { h } from "../dom.js";
import { fixed, short } from "../numbers.js";
import { extent } from "./contribution.js";
import { hostOf } from "./task.js";

/** @param {Task} task */
export function lead(task) {
  const [first, second] = [hostOf(task.leader), hostOf(task.helper)];
  return (
    "Your measurements help to draw a radio map. They stay on this device: a report made of them is" +
    ` split into two halves, one for ${first} and one for ${second}, and neither half alone tells` +
    " anything of them."
  );
}

/** @param {Task} task */
export function facts(task) {
  return [factList(task), promise(task)];
}

/**
 * A moment of the task as people here read it.
 *
 * @param {string} time
 */
export function moment(time) {
  return new Intl.DateTimeFormat("en-GB", {
    day: "numeric",
    month: "long",
    year: "numeric",
    hour: "2-digit",
    minute: "2-digit",
    timeZoneName: "short",
  }).format(new Date(time));
}

/** @param {Task} task */
function factList({ survey, leader, helper, closes, admission }) {
  const { west, east, south, north } = extent(survey.grid);
  const [wide, high] = [east - west, north - south];
  const size =
    Math.max(wide, high) < 2000
      ? `${fixed(wide, 0)} × ${fixed(high, 0)} m`
      : `${fixed(wide / 1000)} × ${fixed(high / 1000)} km`;
  const count = survey.stations.length;
  const rows = [
    ["Open until", moment(closes)],
    ["Added up by", `${hostOf(leader)} and ${hostOf(helper)}, together`],
    ["Area", `${size}, ${count} base station${count === 1 ? "" : "s"}`],
    [
      "Who takes part",
      admission.type === "Invitations" ? "Whoever has an invitation, once" : "Anybody, once each",
    ],
  ];
  return h(
    "dl",
    { testid: "facts" },
    ...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
  );
}

/** @param {Task} task */
function promise(task) {
  const { participants, epsilon, delta } = task.survey;
  const people = `${participants.toLocaleString("en-GB")} ${participants === 1 ? "report" : "reports"}`;
  return h(
    "div",
    { class: "promise", testid: "promise" },
    h("h3", {}, "What is promised"),
    h(
      "p",
      {},
      `Only a sum of at least ${people} is opened, and each aggregator adds noise to it first.` +
        ` Whatever they publish is at most ${short(Math.exp(epsilon))} times as likely with your` +
        " report as without it, and the other way round, apart from a probability of at most ",
      ...power(delta),
      `. That bounds what anybody can learn from it about your measurements, and about whether you` +
        ` took part; it does not make it nothing. (Differential privacy with ε = ${short(epsilon)}` +
        " and δ = ",
      ...power(delta),
      ".)",
    ),
    h("details", {}, h("summary", {}, "What this rests on"), assumptions(task)),
  );
}

/**
 * A small number as people write it, such as 10⁻⁶.
 *
 * @param {number} value
 */
function power(value) {
  const [digits, exponent] = value.toExponential(1).split("e");
  const factor = Number(digits) === 1 ? "" : `${Number(digits)} × `;
  return [`${factor}10`, h("sup", {}, String(Number(exponent)).replace("-", "−"))];
}

/** @param {Task} task */
function assumptions({ leader, helper }) {
  const [first, second] = [hostOf(leader), hostOf(helper)];
  const points = [
    `${first} and ${second} do not collude. Together they could undo the split, and would see roughly` +
      " where you measured which base station, and how strong it was. One of them alone cannot.",
    `${first} gives this page out unchanged. The command veilmap contribute does the same on your` +
      " own computer and does not depend on that.",
    "Each person sends one report. A second one, or another survey with the same measurements, adds" +
      " to what can be learnt.",
    "Not hidden: both see that a device at your network address sent a report, and when.",
  ];
  return h("ul", {}, ...points.map((point) => h("li", {}, point)));
}

/** @param {Task} task */
export function footer({ digest }) {
  return [
    "Task ",
    h("code", { title: digest, testid: "digest" }, `${digest.slice(0, 16)}…`),
    ", the same at both aggregators: ",
    h("a", { href: "/task" }, "what it says"),
    ".",
  ];
}
