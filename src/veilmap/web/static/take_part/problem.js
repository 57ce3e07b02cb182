/** What went wrong, in a line for people: what it is, where, and what to do. */
export class Problem extends Error {
  /**
   * @param {string} line
   * @param {string} [reason]  one word for programs, as aggregators answer with
   */
  constructor(line, reason = "") {
    super(line);
    this.reason = reason;
  }
}

/**
 * The line of a problem; anything else is a mistake of this page.
 *
 * @param {unknown} error
 */
export function lineOf(error) {
  if (error instanceof Problem) return error.message;
  console.error(error);
  return `This page made a mistake (${error}). Reload it, or take part with veilmap contribute.`;
}
