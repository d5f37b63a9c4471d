// Take it with you: snippets that give what is on the screen, downloads, a link.

import { element } from "./element.js";
import { fieldParameters, viewOf } from "./field_view.js";
import { downloadField } from "./downloads.js";
import { errorBox } from "./messages.js";
import { commandSnippet, curlSnippet, pythonSnippet, snippetBox, zarrSnippet } from "./snippets.js";

/** Return the view that snippets describe; variables of less than two dimensions are taken whole. */
function exportedView(variable, state) {
  if (variable.dims.length >= 2) return viewOf(variable, state);
  return {
    variable,
    y: null,
    x: variable.dims[0] ?? null,
    index: {},
    over: [],
    statistic: "",
    box: [0, 1, 0, variable.shape[0] ?? 1],
  };
}

/** Snippets and downloads of one state. */
export class ExportView {
  constructor(archive, variable, server, savePicture) {
    Object.assign(this, { archive, variable, server, savePicture });
    this.element = element("section", { class: "card export", "aria-label": "Take it with you" });
  }

  update(state) {
    const view = exportedView(this.variable, state);
    const isField = this.variable.dims.length >= 2;
    const parameters = isField
      ? fieldParameters(this.archive.url, view)
      : { url: this.archive.url, variable: this.variable.path };
    const problem = element("div", {});
    const save = (text, work) =>
      element(
        "button",
        {
          type: "button",
          onclick: async () => {
            problem.replaceChildren();
            try {
              await work();
            } catch (error) {
              problem.replaceChildren(errorBox(error));
            }
          },
        },
        text,
      );
    const buttons = [
      isField && this.savePicture ? save("PNG", () => this.savePicture()) : null,
      isField ? save("NetCDF", () => downloadField("netcdf", parameters, this.variable)) : null,
      isField ? save("CSV", () => downloadField("csv", parameters, this.variable)) : null,
    ];
    const entries = [
      ["Python", pythonSnippet(this.archive, view)],
      ["xarray over /zarr", zarrSnippet(this.archive, view)],
      ["Command line", commandSnippet(this.archive, view)],
    ];
    if (isField) entries.push(["curl", curlSnippet(parameters, this.server.needs_token)]);
    this.element.replaceChildren(
      element(
        "div",
        { class: "card-head" },
        element("h3", {}, "Take it with you"),
        isField ? element("div", { class: "row" }, element("span", { class: "muted" }, "Download"), ...buttons) : null,
      ),
      problem,
      snippetBox(entries),
    );
  }
}
