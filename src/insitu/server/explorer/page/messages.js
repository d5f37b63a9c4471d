// What the page says when something is under way or went wrong.

import { element } from "./element.js";

/** Return a box that shows an error: message, causes, a button to try again. */
export function errorBox(problem, retry) {
  const causes = (problem.causes ?? []).map((cause) =>
    element("li", {}, typeof cause === "string" ? cause : JSON.stringify(cause)),
  );
  return element(
    "div",
    { class: "error-box", role: "alert" },
    element("strong", {}, "This cannot be shown."),
    element("p", {}, problem.message),
    causes.length ? element("ul", {}, causes) : null,
    retry ? element("button", { type: "button", onclick: retry }, "Try again") : null,
  );
}

/** A thin bar that moves while something loads, and a text that says what. */
export class LoadingBar {
  element = element(
    "div",
    { class: "loading", role: "status", hidden: true },
    element("span", { class: "visually-hidden" }),
  );

  show(text = "Loading") {
    this.element.firstChild.textContent = text;
    this.element.hidden = false;
  }

  hide() {
    this.element.hidden = true;
  }
}
