/** The only place where the page talks to its server. */

/** @import {ArrayInfo, LayerHeader, SeenHeader, SumHeader} from "./types.js" */
/** @import {Pack} from "./pack.js" */

import { readPack } from "./pack.js";

/** @typedef {Record<string, string | number | boolean | null>} Query */

/** The server has said in one line what is wrong. */
export class ApiError extends Error {}

/** Nobody answers. */
export class ServerGone extends ApiError {
  constructor() {
    super("The server has stopped answering; is `veilmap serve` still running?");
  }
}

/**
 * @param {string} path
 * @param {RequestInit} [options]
 */
async function request(path, options) {
  const response = await fetch(path, options).catch((/** @type {unknown} */ problem) => {
    throw isAbort(problem) ? problem : new ServerGone();
  });
  if (response.ok) return response;
  const answer = await response.json().catch(() => null);
  throw new ApiError(answer?.error ?? `The server answered ${response.status} to ${path}`);
}

/**
 * @template T
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<T>}
 */
export async function getJson(path, signal) {
  return (await request(path, { signal: signal ?? null })).json();
}

/**
 * A layer of the map, for all cells.
 *
 * @param {string} run
 * @param {Query} query
 * @param {AbortSignal} signal
 * @returns {Promise<Pack<LayerHeader>>}
 */
export async function getLayer(run, query, signal) {
  return getPack(runPath(run, "layer", query), signal);
}

/**
 * What the server sees of one user.
 *
 * @param {string} run
 * @param {Query} query
 * @param {AbortSignal} signal
 * @returns {Promise<Pack<SeenHeader>>}
 */
export async function getSeen(run, query, signal) {
  return getPack(runPath(run, "seen", query), signal);
}

/**
 * What was opened of one base station of a survey.
 *
 * @param {string} run
 * @param {Query} query
 * @param {AbortSignal} signal
 * @returns {Promise<Pack<SumHeader>>}
 */
export async function getSum(run, query, signal) {
  return getPack(runPath(run, "sum", query), signal);
}

/**
 * @template {{arrays: ArrayInfo[]}} Header
 * @param {string} path
 * @param {AbortSignal} signal
 * @returns {Promise<Pack<Header>>}
 */
async function getPack(path, signal) {
  return readPack(await (await request(path, { signal })).arrayBuffer());
}

/**
 * @template T
 * @param {string} path
 * @param {unknown} [body]
 * @returns {Promise<T>}
 */
export async function post(path, body) {
  const headers = { "X-Veilmap": "page", "Content-Type": "application/json" };
  const options = { method: "POST", headers, body: JSON.stringify(body ?? {}) };
  return (await request(path, options)).json();
}

/**
 * An address about one run.
 *
 * @param {string} run
 * @param {string} [what]
 * @param {Query} [query]  null is left out
 */
export function runPath(run, what = "", query = {}) {
  const known = Object.entries(query).filter(([, value]) => value !== null && value !== "");
  const search = new URLSearchParams(known.map(([name, value]) => [name, String(value)]));
  const path = `/api/runs/${encodeURIComponent(run)}${what && `/${what}`}`;
  return known.length ? `${path}?${search}` : path;
}

/** @param {unknown} problem */
export function isAbort(problem) {
  return problem instanceof DOMException && problem.name === "AbortError";
}

/**
 * A problem in one line for people.
 *
 * @param {unknown} problem
 */
export function inWords(problem) {
  return problem instanceof Error ? problem.message : String(problem);
}
