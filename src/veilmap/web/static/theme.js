/** Light, dark, or as the system has it; kept for the next visit. */

const KEY = "veilmap-theme";

/**
 * @param {HTMLSelectElement} select
 * @param {() => void} changed
 */
export function themeSwitch(select, changed) {
  const apply = () => {
    document.documentElement.dataset.theme = select.value;
    changed();
  };
  select.value = kept() ?? "system";
  apply();
  select.addEventListener("change", () => {
    keep(select.value);
    apply();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
}

/** Browsers may forbid keeping anything; the theme then lasts as long as the page. */
function kept() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** @param {string} theme */
function keep(theme) {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // as above
  }
}
