// What the page says when something is under way or went wrong.

import { formatState, readState } from "./address.js";
import { ApiError } from "./api.js";
import { element } from "./element.js";
import { adviseOn, secondsToWait } from "./error_advice.js";

/** @import { Child } from "./element.js" */

/**
 * Return a box that shows an error: what happened, what to do, and ways out. Of a server that is busy it asks again by
 * itself, after the time that the server says.
 *
 * @param {unknown} problem
 * @param {() => unknown} [retry]
 */
export function errorBox(problem, retry) {
  const failure = problem instanceof ApiError ? problem : null;
  const causes = (failure?.causes ?? []).map((cause) =>
    element("li", {}, typeof cause === "string" ? cause : JSON.stringify(cause)),
  );
  const advice = failure ? adviseOn(failure) : { title: "This cannot be shown", text: "", way: "again" };
  const waiting = element("span", { class: "muted", "aria-live": "off" });
  const box = element(
    "div",
    { class: "error-box", role: "alert" },
    element("strong", {}, `${advice.title}.`),
    element("p", {}, sentence(problem instanceof Error ? problem.message : String(problem))),
    causes.length ? element("ul", {}, causes) : null,
    advice.text ? element("p", { class: "advice" }, advice.text) : null,
    element("div", { class: "row" }, wayOut(advice.way, retry), waiting),
  );
  const seconds = failure && retry ? secondsToWait(failure) : null;
  if (seconds !== null && retry) askAgainIn(seconds, box, waiting, retry);
  return box;
}

/**
 * Return a text as a sentence: with a capital, unless it begins with a name of the archive, and a full stop.
 *
 * @param {string} text
 */
function sentence(text) {
  const begun = text.replace(/^(an?|it|no|the|there|this|these|times|two) /, (word) => word[0].toUpperCase() + word.slice(1));
  return /[.!?\])…]$/.test(begun) ? begun : `${begun}.`;
}

/**
 * @param {string | null} way
 * @param {(() => unknown) | undefined} retry
 * @returns {Child}
 */
function wayOut(way, retry) {
  const { url, variable } = readState();
  if (way === "reload" && url)
    return element("button", { type: "button", onclick: () => location.reload() }, "Open it anew");
  if (way === "reset" && variable)
    return element("a", { class: "button", href: formatState({ url, variable }) }, "Show the variable as at first");
  const list = way === "list" ? element("a", { class: "button", href: "#" }, "List all archives") : null;
  const again = retry && way !== "reset" ? element("button", { type: "button", onclick: retry }, "Try again") : null;
  return [list, again];
}

/**
 * Count down, and ask again unless the box has gone meanwhile.
 *
 * @param {number} seconds
 * @param {HTMLElement} box
 * @param {HTMLElement} text where the seconds are shown
 * @param {() => unknown} retry
 */
function askAgainIn(seconds, box, text, retry) {
  let left = seconds;
  let wasShown = false;
  const show = () => {
    text.textContent = `The page asks again in ${left} s.`;
  };
  show();
  const timer = setInterval(() => {
    wasShown ||= box.isConnected;
    if (wasShown && !box.isConnected) clearInterval(timer);
    else if (--left > 0) show();
    else {
      clearInterval(timer);
      if (box.isConnected) retry();
    }
  }, 1000);
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
