/** One request at a time; whatever is asked meanwhile becomes one more, with the newest settings. */

import { isAbort } from "./api.js";

export class Flight {
  /** @type {AbortController | null} */
  #flying = null;
  #again = false;
  #task;
  #signal;
  #watch;

  /**
   * @param {(signal: AbortSignal) => Promise<void>} task  reads settings when it begins
   * @param {AbortSignal} signal  ends everything, for when a view is left
   * @param {{busy: (busy: boolean) => void, fail: (problem: unknown) => void}} watch
   */
  constructor(task, signal, watch) {
    this.#task = task;
    this.#signal = signal;
    this.#watch = watch;
    signal.addEventListener("abort", () => this.#flying?.abort());
  }

  /** Asks when the question under way is answered: for drags, where answers show on the way. */
  ask() {
    this.#again = true;
    if (!this.#flying) void this.#fly();
  }

  /** Asks at once, and gives up the question under way: for one of another kind. */
  askNow() {
    this.#flying?.abort();
    this.ask();
  }

  async #fly() {
    this.#watch.busy(true);
    while (this.#again && !this.#signal.aborted) {
      this.#again = false;
      this.#flying = new AbortController();
      try {
        await this.#task(this.#flying.signal);
      } catch (problem) {
        if (!isAbort(problem)) this.#watch.fail(problem);
      }
    }
    this.#flying = null;
    this.#watch.busy(false);
  }
}
