// Page of one variable: what it is, and tabs for values, chunks, attributes.

import { changeState } from "./address.js";
import { downloadAnimation } from "./animation.js";
import { isPicture } from "./archive.js";
import { ChunkView } from "./chunk_view.js";
import { downloadPicture } from "./downloads.js";
import { element } from "./element.js";
import { ExportView } from "./export_view.js";
import { FieldView } from "./field_view.js";
import { FormulaBar } from "./formula_bar.js";
import { formatBytes, formatCount, plural } from "./format.js";
import { attributeTable } from "./group_page.js";
import { VectorView } from "./vector_view.js";
import { stillView } from "./view.js";

/** @import { State } from "./address.js" */
/** @import { Archive, Variable } from "./archive.js" */
/** @import { View } from "./view.js" */

const TABS = [
  ["values", "Values"],
  ["chunks", "Chunks"],
  ["attributes", "Attributes"],
];

/** Page of one variable. */
export class VariablePage {
  /** @type {View | null} */
  #view = null;
  /** @type {string | null} */
  #shownTab = null;

  /**
   * @param {Archive} archive
   * @param {Variable} variable
   * @param {boolean} needsToken whether the server asks for a token
   */
  constructor(archive, variable, needsToken) {
    this.archive = archive;
    this.variable = variable;
    // A formula has no chunks of its own.
    this.tabs = TABS.filter(([name]) => name !== "chunks" || !variable.python).map(([name, text]) =>
      element(
        "button",
        {
          type: "button",
          role: "tab",
          id: `tab-${name}`,
          "aria-controls": "panel",
          "data-tab": name,
          onclick: () => changeState({ view: name === "values" ? null : name }),
          onkeydown: (event) => this.#moveTab(name, event),
        },
        text,
      ),
    );
    this.panel = element("div", { id: "panel", role: "tabpanel", tabindex: "-1" });
    this.export = new ExportView(
      archive,
      variable,
      needsToken,
      () => this.#savePicture(),
      (onprogress, signal) => this.#saveAnimation(onprogress, signal),
    );
    this.element = element(
      "main",
      { class: "variable-page", id: "main" },
      this.#head(),
      ["number", "bool"].includes(variable.kind) ? new FormulaBar(archive, variable.path).element : null,
      element("div", { class: "tabs", role: "tablist", "aria-label": "View" }, this.tabs),
      this.panel,
      this.export.element,
    );
  }

  #head() {
    const { variable } = this;
    const size = variable.dims.map((dim, at) =>
      element("span", { class: "pill" }, `${dim} ${formatCount(variable.shape[at])}`),
    );
    const facts = [
      variable.dtype,
      variable.units && variable.units !== "1" ? variable.units : null,
      variable.chunk_shape
        ? `chunks ${variable.chunk_shape.join(" × ")}`
        : variable.tiles > 1
          ? `${plural(variable.tiles, "grid")} of chunks`
          : null,
      variable.chunks ? plural(variable.chunks, "chunk") : null,
      (variable.codecs ?? []).length ? variable.codecs.join(" | ") : null,
      variable.files && variable.stored_bytes ? plural(variable.files, "file") : null,
      variable.variables
        ? `computed from ${variable.variables.join(", ")}`
        : `${variable.stored_bytes ? `${formatBytes(variable.stored_bytes)} stored, ` : ""}${formatBytes(variable.virtual_bytes)} as an array`,
    ].filter(Boolean);
    return element(
      "header",
      { class: "variable-head" },
      element(
        "h1",
        {},
        variable.long_name || variable.standard_name || variable.name,
        variable.long_name || variable.standard_name ? element("code", {}, variable.path) : null,
      ),
      element("p", { class: "pills" }, size.length ? size : element("span", { class: "pill" }, "scalar")),
      element("p", { class: "muted small-text facts-line break" }, facts.join(" · ")),
    );
  }

  /**
   * @param {string} name tab that has the focus
   * @param {KeyboardEvent} event
   */
  #moveTab(name, event) {
    const by = event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : 0;
    if (!by) return;
    const at = this.tabs.findIndex((tab) => tab.dataset.tab === name);
    const next = this.tabs[(at + by + this.tabs.length) % this.tabs.length];
    next.focus();
    next.click();
  }

  /**
   * Show a state.
   *
   * @param {State} state
   */
  update(state) {
    const [name] = TABS.find(([tab]) => tab === state.view) ?? TABS[0];
    for (const tab of this.tabs) {
      const isHere = tab.dataset.tab === name;
      tab.setAttribute("aria-selected", String(isHere));
      tab.tabIndex = isHere ? 0 : -1;
    }
    if (name !== this.#shownTab || !this.#view) {
      this.#view?.close();
      this.#shownTab = name;
      this.#view = this.#make(name);
      this.panel.setAttribute("aria-labelledby", `tab-${name}`);
      this.panel.replaceChildren(this.#view.element);
    }
    this.export.element.hidden = name !== "values" || Boolean(this.variable.unreadable);
    if (!this.export.element.hidden) this.export.update(state);
    return this.#view.update(state);
  }

  /**
   * @param {string} name
   * @returns {View}
   */
  #make(name) {
    const { archive, variable } = this;
    if (name === "attributes")
      return stillView(
        element("section", { class: "card" }, element("h3", {}, "Attributes"), attributeTable(variable.attributes)),
      );
    if (variable.unreadable)
      return stillView(
        element(
          "div",
          { class: "error-box", role: "alert" },
          element("strong", {}, `${variable.name} cannot be read.`),
          element("p", {}, variable.unreadable),
        ),
      );
    if (name === "chunks") return new ChunkView(archive, variable);
    return isPicture(variable) ? new FieldView(archive, variable) : new VectorView(archive, variable);
  }

  async #savePicture() {
    const view = this.#view;
    if (!(view instanceof FieldView)) throw new Error(`There is no picture of ${this.variable.name}.`);
    await downloadPicture(view);
  }

  /**
   * @param {(done: number, all: number) => void} onprogress
   * @param {AbortSignal} signal
   */
  async #saveAnimation(onprogress, signal) {
    if (this.#view instanceof FieldView) await downloadAnimation(this.#view, onprogress, signal);
  }

  /** Ask again. */
  reload() {
    return this.#view?.reload();
  }

  /** Draw again, in the colours of the theme. */
  recolour() {
    this.#view?.recolour();
  }

  /** Stop what is under way. */
  close() {
    this.#view?.close();
  }
}
