// Values as a table: scalars, one-dimensional variables and texts.

import { askJson, Latest } from "./api.js";
import { element } from "./element.js";
import { errorBox } from "./messages.js";
import { formatCount } from "./format.js";

const COUNT = 200;

/** @import { Variable } from "./archive.js" */

/**
 * Answer of `api/table`.
 *
 * @typedef {{ columns: string[], rows: string[][], start: number, total: number }} TableAnswer
 */

/** Table of values, page by page. `onstart(start)` is called when another page is wanted. */
export class TableView {
  #latest = new Latest();

  /**
   * @param {string} url
   * @param {Variable} variable
   * @param {(start: number) => void} onstart
   */
  constructor(url, variable, onstart) {
    this.url = url;
    this.variable = variable;
    this.onstart = onstart;
    this.element = element("section", { class: "card wide", "aria-label": "Values" });
  }

  /** Show the rows from `start` on. */
  async show(start = 0) {
    this.element.setAttribute("aria-busy", "true");
    try {
      const parameters = { url: this.url, variable: this.variable.path, start, count: COUNT };
      const answer = await this.#latest.run((signal) => askJson("table", parameters, signal));
      if (answer) this.#draw(answer);
    } catch (problem) {
      this.element.replaceChildren(errorBox(problem, () => this.show(start)));
    }
    this.element.setAttribute("aria-busy", "false");
  }

  /** @param {TableAnswer} answer */
  #draw({ columns, rows, start, total }) {
    if (this.variable.dims.length === 0) {
      const value = rows[0]?.at(-1) ?? "–";
      this.element.replaceChildren(element("h3", {}, "Value"), element("p", { class: "scalar" }, value));
      return;
    }
    if (total === 0) {
      const dim = this.variable.dims.find((_, at) => this.variable.shape[at] === 0) ?? "";
      const text = `This variable has no values: its dimension ${dim} has length 0.`;
      this.element.replaceChildren(element("h3", {}, "Values"), element("p", { role: "status" }, text));
      return;
    }
    const head = element(
      "tr",
      {},
      columns.map((name) => element("th", { scope: "col" }, String(name))),
    );
    const body = rows.map((row) =>
      element(
        "tr",
        {},
        row.map((text, column) =>
          element("td", { class: column === row.length - 1 ? "value" : "muted" }, String(text)),
        ),
      ),
    );
    /**
     * @param {number} by
     * @param {string} text
     */
    const step = (by, text) =>
      element(
        "button",
        {
          type: "button",
          disabled: start + by < 0 || start + by >= total,
          onclick: () => this.onstart(Math.max(0, start + by)),
        },
        text,
      );
    const pager = element(
      "div",
      { class: "pager" },
      step(-COUNT, "Previous"),
      step(COUNT, "Next"),
      element(
        "span",
        { class: "muted" },
        `${formatCount(start)} to ${formatCount(start + rows.length - 1)} of ${formatCount(total)}`,
      ),
    );
    this.element.replaceChildren(
      element("div", { class: "card-head" }, element("h3", {}, "Values"), total > rows.length ? pager : null),
      element(
        "div",
        { class: "table-frame", tabindex: "0", role: "region", "aria-label": "Table of values" },
        element("table", {}, element("thead", {}, head), element("tbody", {}, body)),
      ),
    );
  }
}
