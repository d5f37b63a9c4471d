// Controls of a picture of values: colours, range, axes, sampling.

import { changeState } from "./address.js";
import { MAPS } from "./colour.js";
import { choice, element, labelled } from "./element.js";
import { formatTime } from "./format.js";

/** @import { State } from "./address.js" */
/** @import { Variable } from "./archive.js" */
/** @import { ValueColours } from "./value_colours.js" */

/** Controls that change the state by themselves. */
export class FieldControls {
  /** @param {Variable} variable */
  constructor(variable) {
    this.variable = variable;
    /** @type {[string, string][]} */
    const maps = Object.entries(MAPS).map(([name, { label }]) => [name, label]);
    this.map = choice("Colour map", maps, "viridis", (map) => changeState({ map }));
    this.reversed = checkbox("reversed");
    this.log = checkbox("log");
    this.low = this.#limit("low", "Lowest value of the colours");
    this.high = this.#limit("high", "Highest value of the colours");
    this.automatic = element(
      "button",
      { type: "button", onclick: () => changeState({ low: null, high: null }) },
      "Auto",
    );
    /** @type {[string, string][]} */
    const axes = [
      ["", "coordinates"],
      ["index", "index"],
    ];
    this.axes = choice("Axes", axes, "", (name) => changeState({ axes: name }));
    /** @type {[string, string][]} */
    const methods = [
      ["", "automatic"],
      ["mean", "mean"],
      ["nearest", "nearest"],
    ];
    this.sampling = choice("Sampling", methods, "", (sampling) => changeState({ sampling }));
    this.elements = [
      labelled(
        "Colours",
        this.map,
        element("label", { class: "tick" }, this.reversed, "reverse"),
        element("label", { class: "tick" }, this.log, "log"),
      ),
      labelled("Range", this.low, "to", this.high, this.automatic),
      labelled("Axes", this.axes),
      labelled("Sampling", this.sampling),
    ];
  }

  /**
   * Show what a state chooses.
   *
   * @param {State} state
   */
  showState(state) {
    this.axes.value = state.axes ?? "";
    this.sampling.value = state.sampling ?? "";
    this.reversed.checked = Boolean(state.reversed);
    this.log.checked = Boolean(state.log);
    this.automatic.disabled = state.low === undefined && state.high === undefined;
  }

  /**
   * Show the colours that are drawn.
   *
   * @param {ValueColours} colours
   */
  showColours(colours) {
    this.map.value = colours.map;
    this.low.value = this.#formatLimit(colours.low);
    this.high.value = this.#formatLimit(colours.high);
  }

  /** @param {number} value */
  #formatLimit(value) {
    return this.variable.kind === "time" ? formatTime(value) : String(roundLimit(value));
  }

  /**
   * @param {"low" | "high"} key
   * @param {string} label
   */
  #limit(key, label) {
    /** @type {HTMLInputElement} */
    const input = element("input", {
      type: "text",
      inputmode: "decimal",
      class: "number",
      "aria-label": label,
      name: key,
      onchange: () => this.#setLimit(key, input),
    });
    return input;
  }

  /**
   * @param {"low" | "high"} key
   * @param {HTMLInputElement} input
   */
  #setLimit(key, input) {
    const text = input.value.trim().replace("−", "-");
    const number =
      this.variable.kind === "time" ? Date.parse(`${text.replace(" ", "T")}Z`) || Date.parse(text) : Number(text);
    const isBad = text !== "" && !Number.isFinite(number);
    input.setAttribute("aria-invalid", String(isBad));
    if (!isBad) changeState({ [key]: text === "" ? null : number });
  }
}

/** @param {"reversed" | "log"} key */
function checkbox(key) {
  /** @type {HTMLInputElement} */
  const input = element("input", {
    type: "checkbox",
    name: key,
    onchange: () => changeState({ [key]: input.checked ? "1" : null }),
  });
  return input;
}

/**
 * Return a number with the digits that matter to a colour bar.
 *
 * @param {number} value
 */
export function roundLimit(value) {
  return Number(value.toPrecision(5));
}
