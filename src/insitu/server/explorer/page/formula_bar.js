// A line in which a formula is typed, with shortcuts for the difference and the ratio of two variables.

import { changeState } from "./address.js";
import { askJson } from "./api.js";
import { choice, element } from "./element.js";

/** @import { Archive, Variable } from "./archive.js" */

/** @type {[string, string][]} */
const SHORTCUTS = [
  ["-", "minus"],
  ["/", "divided by"],
];

/**
 * Return what a formula gives, described as a variable is.
 *
 * @param {string} url
 * @param {string} path the formula after `=`
 * @returns {Promise<Variable>}
 */
export async function askFormula(url, path) {
  return { ...(await askJson("formula", { url, formula: path.slice(1) })), group: "" };
}

/**
 * Return how a formula names a variable.
 *
 * @param {string} path
 */
export function quoteName(path) {
  const name = path.replace(/^\/+|\/+$/g, "");
  return /^[A-Za-z_]\w*$/.test(name) ? name : `\`${name}\``;
}

/** A form that shows a formula in place of a variable. */
export class FormulaBar {
  /**
   * @param {Archive} archive
   * @param {string} path of the variable that is shown, or a formula after `=`
   */
  constructor(archive, path) {
    const shown = path.startsWith("=") ? path.slice(1) : quoteName(path);
    const input = element("input", {
      type: "text",
      name: "formula",
      value: shown,
      size: 40,
      spellcheck: "false",
      autocomplete: "off",
      "aria-label": "Formula: names of variables, numbers, + - * / **, functions such as sqrt and where",
    });
    const go = (/** @type {string} */ text) => {
      const formula = text.trim();
      if (!formula) return;
      const stored = archive.variable(formula.replaceAll("`", ""));
      changeState({ variable: stored ? stored.path : `=${formula}`, low: null, high: null });
    };
    const others = archive.groups
      .flatMap((group) => group.variables)
      .filter(({ kind, is_coordinate, path: other }) => kind === "number" && !is_coordinate && other !== path);
    const operator = choice("What to compute", SHORTCUTS, "-", () => {});
    /** @type {[string, string][]} */
    const options = [["", "another variable …"], ...others.map((other) => /** @type {[string, string]} */ ([other.path, other.path]))];
    const other = choice("Another variable", options, "", (chosen) => {
      if (!chosen) return;
      const left = /^[\w`/.]+$/.test(shown) ? shown : `(${shown})`;
      go(`${left} ${operator.value} ${quoteName(chosen)}`);
    });
    this.input = input;
    this.element = element(
      "form",
      {
        class: "formula-bar row",
        onsubmit: (event) => {
          event.preventDefault();
          go(input.value);
        },
      },
      element("label", { class: "row" }, element("span", { class: "muted" }, "Formula"), input),
      element("button", { type: "submit" }, "Show"),
      others.length ? [operator, other] : null,
    );
  }
}
