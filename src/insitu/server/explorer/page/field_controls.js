// Controls of a picture of values: colours, range, axes, sampling.

import { changeState } from "./address.js";
import { cssHex, MAP_GROUPS } from "./colour.js";
import { choice, element, labelled, setOptions } from "./element.js";
import { flagsOf } from "./flag_colours.js";
import { formatTime } from "./format.js";
import { animatedDimensions, OWN_RANGE, rangeDimension } from "./sampled_range.js";

/** @import { State } from "./address.js" */
/** @import { Variable } from "./archive.js" */
import { isDark, themeColour } from "./theme.js";
import { MOST_STEPS } from "./value_colours.js";

/** @import { Child } from "./element.js" */
/** @import { FieldPlane } from "./plane.js" */
/** @import { ValueColours } from "./value_colours.js" */

const FLAGS = "flags";
const MORE_KEY = "insitu-more";
/** @type {(keyof State)[]} What the controls that are folded away choose. */
const RARE = ["lines", "mask", "reversed", "log", "steps", "below", "above", "missing", "limits", "range", "axes", "sampling"];

/** Controls that change the state by themselves. */
export class FieldControls {
  #shownKey = "";
  summary = element("summary", {}, "More");

  /** @param {Variable} variable */
  constructor(variable) {
    this.variable = variable;
    this.map = choice("Colour map", [], "", (map) => changeState({ map: map === FLAGS ? null : map }));
    this.map.replaceChildren(
      ...(flagsOf(variable) ? [element("option", { value: FLAGS }, "One for each meaning")] : []),
      ...Object.entries(MAP_GROUPS).map(([label, maps]) =>
        element(
          "optgroup",
          { label },
          Object.entries(maps).map(([name, map]) => element("option", { value: name }, map.label)),
        ),
      ),
    );
    /** @type {HTMLInputElement} */
    this.steps = element("input", {
      type: "number",
      class: "number short",
      name: "steps",
      min: 0,
      max: MOST_STEPS,
      placeholder: "none",
      "aria-label": "Steps of the colours",
      onchange: () => changeState({ steps: Number(this.steps.value) || null }),
    });
    this.others = {
      below: colourInput("below", "Colour of values below the range"),
      above: colourInput("above", "Colour of values above the range"),
      missing: colourInput("missing", "Colour of missing values"),
    };
    this.plain = element(
      "button",
      { type: "button", class: "small", onclick: () => changeState({ below: null, above: null, missing: null }) },
      "Reset",
    );
    this.reversed = checkbox("reversed");
    this.log = checkbox("log");
    this.low = this.#limit("low", "Lowest value of the colours");
    this.high = this.#limit("high", "Highest value of the colours");
    this.automatic = element(
      "button",
      { type: "button", onclick: () => changeState({ low: null, high: null }) },
      "Auto",
    );
    this.range = choice("Pictures that share the range of the colours", [], "", (range) => changeState({ range }));
    /** @type {[string, string][]} */
    const limits = [
      ["", "middle 96 %"],
      ["extremes", "extremes"],
    ];
    this.limits = choice("Automatic limits of the colours", limits, "", (name) => changeState({ limits: name }));
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
    const ticks = [
      element("label", { class: "tick" }, this.reversed, "reverse"),
      element("label", { class: "tick" }, this.log, "log"),
      element("label", { class: "tick" }, "steps", this.steps),
    ];
    const beyond = Object.entries(this.others).map(([name, input]) => element("label", { class: "tick" }, name, input));
    const limitControls = labelled("Range", this.low, "to", this.high, this.automatic);
    const rare = [labelled("Scale", ...ticks), labelled("Colour of", ...beyond, this.plain), labelled("Automatic range", this.limits, this.range)];
    this.ofRange = [limitControls, ...rare];
    this.elements = [labelled("Colours", this.map), limitControls];
    this.rare = [...rare, labelled("Axes", this.axes), labelled("Sampling", this.sampling)];
  }

  /**
   * Return a fold for what is rarely chosen; this browser remembers whether it is open.
   *
   * @param {readonly Child[]} controls of a map
   */
  fold(controls) {
    /** @type {HTMLDetailsElement} */
    const folded = element(
      "details",
      {
        class: "more",
        open: localStorage.getItem(MORE_KEY) === "open",
        ontoggle: () => localStorage.setItem(MORE_KEY, folded.open ? "open" : "closed"),
      },
      this.summary,
      element("div", { class: "toolbar" }, controls, this.rare),
    );
    return folded;
  }

  /**
   * Show what a state chooses.
   *
   * @param {State} state
   * @param {FieldPlane} plane
   */
  showState(state, plane) {
    const dims = animatedDimensions(plane);
    this.range.hidden = dims.length === 0;
    /** @type {[string, string][]} */
    const shared = dims.map((dim) => [dim, `of all ${dim}`]);
    setOptions(this.range, [...shared, [OWN_RANGE, "of this picture"]], rangeDimension(state, plane) ?? OWN_RANGE);
    const chosen = RARE.filter((key) => state[key] !== undefined).length;
    this.summary.textContent = chosen ? `More (${chosen} chosen)` : "More";
    this.limits.value = state.limits ?? "";
    this.axes.value = state.axes ?? "";
    this.sampling.value = state.sampling ?? "";
    this.reversed.checked = Boolean(state.reversed);
    this.log.checked = Boolean(state.log);
    this.plain.disabled = !state.below && !state.above && !state.missing;
    this.automatic.disabled = state.low === undefined && state.high === undefined;
  }

  /**
   * Show the colours that are drawn.
   *
   * @param {ValueColours} colours
   * @param {boolean} areFlags whether each value has a colour and words of its own
   */
  showColours(colours, areFlags) {
    this.map.value = areFlags ? FLAGS : colours.map;
    for (const control of this.ofRange) control.hidden = areFlags;
    this.steps.value = colours.steps ? String(colours.steps) : "";
    // Asking for a colour of the theme makes the browser compute all styles: not for every picture of an animation.
    const key = [colours.below, colours.above, colours.missing, isDark()].join();
    if (key !== this.#shownKey) {
      this.#shownKey = key;
      this.others.below.value = cssHex(colours.below);
      this.others.above.value = cssHex(colours.above);
      this.others.missing.value = cssHex(colours.missing ?? themeColour("missing"));
    }
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

/**
 * @param {"below" | "above" | "missing"} key
 * @param {string} label
 */
function colourInput(key, label) {
  /** @type {HTMLInputElement} */
  const input = element("input", {
    type: "color",
    name: key,
    "aria-label": label,
    onchange: () => changeState({ [key]: input.value }),
  });
  return input;
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
