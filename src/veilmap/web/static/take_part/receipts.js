/** What a participant keeps: a receipt, and later the answer to whether the report was counted. */

/** @import {Shares} from "./report.js" */
/** @import {Role, Task} from "./task.js" */

import { h } from "../dom.js";
import { bytesOf, toHex } from "./bytes.js";
import { Problem } from "./problem.js";
import { ID_BYTES } from "./report.js";
import { NAMES } from "./sending.js";
import { hostOf } from "./task.js";

/** @typedef {Record<Role, string>} Signatures  in hexadecimal digits */
/** @typedef {{task: string, id: string, hashes: string, receipts: Signatures, sent: string}} Receipt */

/** @type {Role[]} */
const ROLES = ["leader", "helper"];

/**
 * @param {Task} task
 * @param {Shares} shares
 * @param {Signatures} receipts
 * @returns {Receipt}
 */
export function receiptOf({ digest }, { id, hashes }, receipts) {
  const sent = new Date().toISOString();
  return { task: digest, id: toHex(id), hashes: toHex(hashes), receipts, sent };
}

/**
 * @param {Task} task
 * @param {Receipt} receipt
 */
export function receiptShown(task, receipt) {
  const file = new Blob([JSON.stringify(receipt, null, 1)], { type: "application/json" });
  const rows = [
    ["Report", receipt.id],
    ["Task", receipt.task],
    ...ROLES.map((role) => [`Signed by ${hostOf(task[role])}`, receipt.receipts[role]]),
    ["Sent", receipt.sent],
  ];
  return [
    h("h3", {}, "Thank you. Both aggregators have taken your report."),
    h(
      "p",
      {},
      "Your measurements are still on this device only. Save the receipt: once the sum has been" +
        " opened, you can choose it on this page to see whether your report was counted. It tells" +
        " nothing of your measurements, but whoever has it can tell that you took part.",
    ),
    h(
      "a",
      {
        class: "button",
        href: URL.createObjectURL(file),
        download: `receipt-${receipt.id.slice(0, 8)}.json`,
        testid: "download",
      },
      "Save the receipt",
    ),
    h(
      "details",
      {},
      h("summary", {}, "What the receipt says"),
      h(
        "dl",
        {},
        ...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", { class: "mono" }, value)]),
      ),
    ),
  ];
}

/**
 * Whether both aggregators list the report of a receipt, in words.
 *
 * @param {Task} task
 * @param {File} file
 */
export async function counted(task, file) {
  const id = idIn(await file.text(), task);
  for (const role of ROLES) {
    const host = hostOf(task[role]);
    const ids = await listed(task, role);
    if (ids === null) return "The sum has not been opened yet, so there is no list. Look again later.";
    if (!ids.has(id)) {
      return (
        `The report is not in the list of ${host}: it was not counted. If you have both signatures,` +
        " show them to its operator."
      );
    }
  }
  return "Yes. Both aggregators list your report in the opened sum.";
}

/**
 * @param {string} text
 * @param {Task} task
 */
function idIn(text, { digest }) {
  let content;
  try {
    content = JSON.parse(text);
  } catch {
    content = null;
  }
  if (typeof content?.id !== "string" || typeof content.task !== "string") {
    throw new Problem("This file is no receipt. Choose the one that you saved after taking part.");
  }
  if (content.task !== digest) throw new Problem("This receipt is of another survey.");
  return content.id;
}

/**
 * The ids of all reports in the opened sum; null before it is opened.
 *
 * @param {Task} task
 * @param {Role} role
 */
async function listed(task, role) {
  const address = `${task[role]}/tasks/${task.digest}/reports`;
  const answer = await fetch(address, { credentials: "omit", cache: "no-store" }).catch(() => null);
  if (answer?.status === 409) return null;
  const most = ID_BYTES * task.most_reports;
  const content = answer?.ok ? await bytesOf(answer, most).catch(() => null) : null;
  if (!content) throw new Problem(`The ${NAMES[role]} does not answer now. Look again later.`);
  const ids = new Set();
  for (let at = 0; at < content.length; at += ID_BYTES) {
    ids.add(toHex(content.subarray(at, at + ID_BYTES)));
  }
  return ids;
}
