// Light, dark, or as the system says; remembered in this browser.

const KEY = "insitu-theme";
const ORDER = ["auto", "light", "dark"];

/** @type {Record<string, string>} */
const NAMES = { auto: "Theme: auto", light: "Theme: light", dark: "Theme: dark" };

const chosenTheme = () => {
  const name = localStorage.getItem(KEY) ?? "";
  return ORDER.includes(name) ? name : "auto";
};

/** Return whether the page is dark now. */
export function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
}

/** @type {Map<string, string>} */
const colours = new Map();

/**
 * Return the value of a colour of the style sheet.
 *
 * @param {string} name
 */
export function themeColour(name) {
  // Asking the browser makes it compute all styles anew, for each picture of an animation.
  const key = `${name} ${isDark()}`;
  const known = colours.get(key) ?? getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  colours.set(key, known);
  return known;
}

/**
 * Let a button go through the themes.
 *
 * @param {HTMLElement} button
 * @param {() => void} onchange called when colours differ
 */
export function startTheme(button, onchange) {
  const show = () => {
    const theme = chosenTheme();
    document.documentElement.dataset.theme = theme;
    button.textContent = NAMES[theme];
  };
  button.title = "Light, dark, or as the system says: press for the next";
  show();
  button.addEventListener("click", () => {
    localStorage.setItem(KEY, ORDER[(ORDER.indexOf(chosenTheme()) + 1) % ORDER.length]);
    show();
    onchange();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", onchange);
}
