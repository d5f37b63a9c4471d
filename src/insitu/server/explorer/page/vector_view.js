// Values of scalars, one-dimensional variables and texts: a line where there are numbers, and a table.

import { changeState } from "./address.js";
import { element } from "./element.js";
import { LinePlot } from "./line_plot.js";
import { TableView } from "./table_view.js";

/** @import { State } from "./address.js" */
/** @import { Archive, Variable } from "./archive.js" */

/** Line plot and table. */
export class VectorView {
  /** @type {State} */
  #state = {};

  /**
   * @param {Archive} archive
   * @param {Variable} variable
   */
  constructor(archive, variable) {
    this.variable = variable;
    const hasLine =
      variable.dims.length === 1 && ["number", "bool", "time"].includes(variable.kind) && variable.shape[0] > 1;
    this.line = hasLine ? new LinePlot(archive.url, variable, () => {}) : null;
    this.table = new TableView(archive.url, variable, (start) => changeState({ start }));
    this.element = element("div", { class: "cards" }, this.line?.element ?? null, this.table.element);
  }

  /**
   * Show a state.
   *
   * @param {State} state
   */
  async update(state) {
    this.#state = state;
    this.line?.show(this.variable.dims[0], {}, `All ${this.variable.shape[0]} values`);
    await this.table.show(Math.max(0, state.start ?? 0));
  }

  /** Ask again. */
  reload() {
    return this.update(this.#state);
  }

  /** Draw again, in the colours of the theme. */
  recolour() {
    this.line?.recolour();
  }

  close() {}
}
