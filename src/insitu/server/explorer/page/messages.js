// What the page says when something is under way or went wrong.

import { ApiError } from "./api.js";
import { element } from "./element.js";

/**
 * Return a box that shows an error: message, causes, a button to try again.
 *
 * @param {unknown} problem
 * @param {() => unknown} [retry]
 */
export function errorBox(problem, retry) {
  const causes = (problem instanceof ApiError ? problem.causes : []).map((cause) =>
    element("li", {}, typeof cause === "string" ? cause : JSON.stringify(cause)),
  );
  return element(
    "div",
    { class: "error-box", role: "alert" },
    element("strong", {}, "This cannot be shown."),
    element("p", {}, problem instanceof Error ? problem.message : String(problem)),
    causes.length ? element("ul", {}, causes) : null,
    retry ? element("button", { type: "button", onclick: retry }, "Try again") : null,
  );
}

/** A thin bar that moves while something loads, and a text that says what. */
export class LoadingBar {
  #text = element("span", { class: "visually-hidden" });
  element = element("div", { class: "loading", role: "status", hidden: true }, this.#text);

  /** @param {string} text what loads */
  show(text) {
    this.#text.textContent = text;
    this.element.hidden = false;
  }

  hide() {
    this.element.hidden = true;
  }
}
