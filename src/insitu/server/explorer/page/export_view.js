// Take it with you: snippets that give what is on the screen, downloads, a link.

import { element } from "./element.js";
import { downloadField } from "./downloads.js";
import { errorBox } from "./messages.js";
import { exportedPlane, fieldParameters } from "./plane.js";
import { commandSnippet, curlSnippet, pythonSnippet, snippetBox, zarrSnippet } from "./snippets.js";

/** @import { State } from "./address.js" */
/** @import { Archive, Variable } from "./archive.js" */

/** Snippets and downloads of one state. */
export class ExportView {
  /**
   * @param {Archive} archive
   * @param {Variable} variable
   * @param {boolean} needsToken whether the server asks for a token
   * @param {() => Promise<void>} savePicture downloads the picture as it is on the screen
   */
  constructor(archive, variable, needsToken, savePicture) {
    this.archive = archive;
    this.variable = variable;
    this.needsToken = needsToken;
    this.savePicture = savePicture;
    this.element = element("section", { class: "card export", "aria-label": "Take it with you" });
  }

  /**
   * Show what gives the picture of a state.
   *
   * @param {State} state
   */
  update(state) {
    const plane = exportedPlane(this.variable, state);
    const isField = this.variable.dims.length >= 2;
    const parameters = isField
      ? fieldParameters(this.archive.url, plane)
      : { url: this.archive.url, variable: this.variable.path };
    const problem = element("div", {});
    /**
     * @param {string} text
     * @param {() => Promise<void>} work
     */
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
      isField ? save("PNG", () => this.savePicture()) : null,
      isField ? save("NetCDF", () => downloadField("netcdf", parameters, this.variable)) : null,
      isField ? save("CSV", () => downloadField("csv", parameters, this.variable)) : null,
    ];
    /** @type {[string, string | null][]} */
    const entries = [
      ["Python", pythonSnippet(this.archive, plane)],
      ["xarray over /zarr", zarrSnippet(this.archive, plane)],
      ["Command line", commandSnippet(this.archive, plane)],
    ];
    if (isField) entries.push(["curl", curlSnippet(parameters, this.needsToken)]);
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
