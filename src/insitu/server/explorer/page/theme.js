// Light, dark, or as the system says; remembered in this browser.

const KEY = "insitu-theme";
const ORDER = ["auto", "light", "dark"];

const kept = () => (ORDER.includes(localStorage.getItem(KEY)) ? localStorage.getItem(KEY) : "auto");

/** Return whether the page is dark now. */
export function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
}

/** Return the value of a colour of the style sheet. */
export function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Let a button go through the themes; `changed` is called when colours differ. */
export function startTheme(button, changed) {
  const show = () => {
    document.documentElement.dataset.theme = kept();
    button.textContent = { auto: "Auto", light: "Light", dark: "Dark" }[kept()];
    button.setAttribute("aria-label", `Colours: ${kept()}. Press to change.`);
  };
  show();
  button.addEventListener("click", () => {
    localStorage.setItem(KEY, ORDER[(ORDER.indexOf(kept()) + 1) % ORDER.length]);
    show();
    changed();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
}
