// Page of one variable: what it is, and tabs for values, chunks, attributes.

import { changeState } from "./address.js";
import { ChunkView } from "./chunk_view.js";
import { downloadPicture } from "./downloads.js";
import { element } from "./element.js";
import { ExportView } from "./export_view.js";
import { FieldView } from "./field_view.js";
import { formatBytes, formatCount, plural } from "./format.js";
import { attributeTable } from "./group_page.js";
import { VectorView } from "./vector_view.js";

const TABS = [
  ["values", "Values"],
  ["chunks", "Chunks"],
  ["attributes", "Attributes"],
];

/** Return whether a variable is drawn as a picture. */
const isPicture = (variable) =>
  variable.dims.length >= 2 &&
  ["number", "time", "bool"].includes(variable.kind) &&
  variable.shape.every((size) => size > 0);

/** Page of one variable. */
export class VariablePage {
  constructor(archive, variable, server) {
    Object.assign(this, { archive, variable, server });
    this.tabs = TABS.map(([name, text]) =>
      element(
        "button",
        {
          type: "button",
          role: "tab",
          id: `tab-${name}`,
          "aria-controls": "panel",
          "data-tab": name,
          onclick: () => changeState({ view: name === "values" ? null : name }),
          onkeydown: (event) => this.#moveTab(event),
        },
        text,
      ),
    );
    this.panel = element("div", { id: "panel", role: "tabpanel", tabindex: "-1" });
    this.export = new ExportView(archive, variable, server, () => this.#savePicture());
    this.element = element(
      "main",
      { class: "variable-page", id: "main" },
      this.#head(),
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
      variable.files ? plural(variable.files, "file") : null,
      `${formatBytes(variable.stored_bytes)} stored, ${formatBytes(variable.virtual_bytes)} as an array`,
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

  #moveTab(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    const next = this.tabs[(this.tabs.indexOf(event.currentTarget) + by + this.tabs.length) % this.tabs.length];
    next.focus();
    next.click();
  }

  /** Show a state. */
  update(state) {
    const name = TABS.some(([tab]) => tab === state.view) ? state.view : "values";
    for (const tab of this.tabs) {
      const isHere = tab.dataset.tab === name;
      tab.setAttribute("aria-selected", String(isHere));
      tab.tabIndex = isHere ? 0 : -1;
    }
    if (name !== this.shown) {
      this.view?.close();
      this.shown = name;
      this.view = this.#make(name);
      this.panel.setAttribute("aria-labelledby", `tab-${name}`);
      this.panel.replaceChildren(this.view.element);
    }
    this.export.element.hidden = name !== "values" || Boolean(this.variable.unreadable);
    if (!this.export.element.hidden) this.export.update(state);
    return this.view.update(state);
  }

  #make(name) {
    const { archive, variable } = this;
    if (name === "attributes")
      return still(
        element("section", { class: "card" }, element("h3", {}, "Attributes"), attributeTable(variable.attributes)),
      );
    if (variable.unreadable)
      return still(
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
    const view = this.view;
    const { variable } = this;
    await downloadPicture({
      picture: view.picture,
      bar: view.bar,
      title: variable.long_name || variable.name,
      caption: view.caption.textContent.split(". Draw")[0],
      variable,
    });
  }

  reload() {
    return this.view?.reload();
  }

  recolour() {
    this.view?.recolour();
  }

  close() {
    this.view?.close();
  }
}

/** Return a view that never changes. */
function still(shown) {
  return { element: shown, update() {}, reload() {}, recolour() {}, close() {} };
}
