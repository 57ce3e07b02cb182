/** The server's phrases as sentences. */

/** @param {string} phrase */
export function capital(phrase) {
  return phrase.charAt(0).toUpperCase() + phrase.slice(1);
}

/** @param {string} phrase */
export function sentence(phrase) {
  return /[.!?…]?$/.exec(phrase)?.[0] || !phrase ? capital(phrase) : `${capital(phrase)}.`;
}
