/** Tabs that follow the arrow keys, with one of them in the order of the tab key. */

/**
 * @param {HTMLElement} list
 * @param {(view: string) => void} choose
 */
export function tabs(list, choose) {
  const all = [...list.querySelectorAll("button")];
  for (const tab of all) {
    tab.addEventListener("click", () => choose(tab.dataset.view ?? ""));
  }
  list.addEventListener("keydown", (event) => {
    const now = all.findIndex((tab) => tab === document.activeElement);
    const last = all.length - 1;
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last }[event.key];
    if (next === undefined || now < 0) return;
    event.preventDefault();
    const tab = all[(next + all.length) % all.length];
    tab?.focus();
    tab?.click();
  });
  return {
    /** @param {string} view */
    select(view) {
      for (const tab of all) {
        const chosen = tab.dataset.view === view;
        tab.setAttribute("aria-selected", String(chosen));
        tab.tabIndex = chosen ? 0 : -1;
        if (chosen) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
      }
    },
  };
}
