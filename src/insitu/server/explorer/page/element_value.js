// The value of one element of a variable, as text: at once that of the picture, soon after that the exact one.

import { askJson, Latest } from "./api.js";
import { element } from "./element.js";
import { flagsOf, FlagColours } from "./flag_colours.js";
import { formatLabel, formatNumber, formatTime, joinUnits, shortenText } from "./format.js";

/** @import { Variable } from "./archive.js" */
/** @import { Pair } from "./field_view.js" */

/** What is read at a position of a picture. */
export class ElementValue {
  #latest = new Latest();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /**
   * @param {string} url of the archive
   * @param {Variable} variable
   * @param {HTMLElement} readout where it is shown
   */
  constructor(url, variable, readout) {
    this.url = url;
    this.variable = variable;
    this.readout = readout;
    const flags = flagsOf(variable);
    this.flags = flags && new FlagColours(flags);
  }

  /**
   * Return a value of the picture as text.
   *
   * @param {number} value
   * @param {string} units
   */
  format(value, units) {
    if (Number.isNaN(value)) return "missing";
    if (this.variable.kind === "time") return formatTime(value);
    if (this.flags) return this.flags.wordsOf(value);
    return formatLabel(value, "number", units);
  }

  /**
   * @param {string} value
   * @param {string} place
   * @param {string} note
   * @param {Pair} [point]
   * @param {string} [title] the value with all its digits
   */
  show(value, place, note, point, title) {
    this.readout.replaceChildren(
      element("strong", { class: "value", title }, value),
      element("span", {}, place),
      element("span", { class: "muted" }, note),
    );
    if (point) Object.assign(this.readout.dataset, { y: point[0], x: point[1] });
  }

  /**
   * Ask for the exact value of an element and show it, with coordinates of two dimensions.
   *
   * @param {Pair} point
   * @param {Record<string, number>} index
   * @param {string} units
   * @param {number} [pause] ms to wait before
   */
  askExact(point, index, units, pause) {
    clearTimeout(this.#timer);
    if (pause) this.#timer = setTimeout(() => this.#showExact(point, index, units), pause);
    else this.#showExact(point, index, units);
  }

  /**
   * @param {Pair} point
   * @param {Record<string, number>} index
   * @param {string} units
   */
  async #showExact(point, index, units) {
    try {
      const answer = await this.#latest.run((signal) =>
        askJson("point", { url: this.url, variable: this.variable.path, index }, signal),
      );
      if (!answer) return;
      /** @type {Record<string, string>} */
      const labels = { ...answer.labels, ...answer.coordinates };
      const place = Object.entries(labels)
        .map(([name, text]) => `${name} ${shortenText(text)}`)
        .join(", ");
      const words = this.flags ? ` (${this.flags.wordsOf(Number(answer.number))})` : "";
      const value = answer.missing ? "missing" : joinUnits(shortenDigits(answer.value), units) + words;
      this.show(value, place, "exact", point, answer.value);
    } catch {
      // The value of the picture stays; what concerns the whole page was reported by api.js.
    }
  }

  /** Ask for nothing any more. */
  stop() {
    clearTimeout(this.#timer);
    this.#latest.stop();
  }
}

/**
 * Return the text of a number with nine digits at most: what a 32-bit number holds. The title has all of them.
 *
 * @param {string} text
 */
function shortenDigits(text) {
  const number = Number(text);
  return text.length > 11 && Number.isFinite(number) && !Number.isInteger(number) ? formatNumber(number, 9) : text;
}
