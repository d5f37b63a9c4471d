// Take it with you: snippets that give what is on the screen, downloads, a link.

import { bandDimension, compositeBands } from "./composite.js";
import { element } from "./element.js";
import { downloadField } from "./downloads.js";
import { errorBox } from "./messages.js";
import { exportedPlane, fieldParameters, hasField, planeOf } from "./plane.js";
import { animatedDimensions } from "./sampled_range.js";
import { regionRequests } from "./regions.js";
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
   * @param {(onprogress: (done: number, all: number) => void, signal: AbortSignal) => Promise<void>} saveAnimation
   */
  constructor(archive, variable, needsToken, savePicture, saveAnimation) {
    this.archive = archive;
    this.variable = variable;
    this.needsToken = needsToken;
    this.savePicture = savePicture;
    this.saveAnimation = saveAnimation;
    /** @type {AbortController | null} An animation that is under way. */
    this.animating = null;
    this.element = element("section", { class: "card export", "aria-label": "Take it with you" });
  }

  /**
   * Show what gives the picture of a state.
   *
   * @param {State} state
   */
  update(state) {
    const isField = hasField(this.variable);
    const plane = exportedPlane(this.variable, state);
    const bands = isField ? compositeBands(state, planeOf(this.variable, state)) : null;
    const dim = bandDimension(this.variable);
    if (bands && dim) plane.composite = { dim, bands };
    const parameters = isField
      ? fieldParameters(this.archive.url, plane)
      : { url: this.archive.url, variable: this.variable.path };
    const canAnimate =
      isField && animatedDimensions(plane).length > 0;
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
      canAnimate ? this.#animationButton(problem) : null,
      isField && !plane.composite ? save("NetCDF", () => downloadField("netcdf", parameters, this.variable)) : null,
      isField && !plane.composite ? save("CSV", () => downloadField("csv", parameters, this.variable)) : null,
    ];
    /** @type {[string, string | null][]} */
    const entries = [
      ["Python", pythonSnippet(this.archive, plane)],
      ["xarray over /zarr", zarrSnippet(this.archive, plane)],
      ["Command line", commandSnippet(this.archive, plane)],
    ];
    if (isField && !plane.composite) entries.push(["curl", curlSnippet(parameters, this.needsToken)]);
    if (isField && state.regions?.length) {
      const requests = regionRequests(this.archive.url, planeOf(this.variable, state), state.regions, state.region_line);
      const lines = requests.map((request, at) => curlSnippet(request, this.needsToken, "region", `region_${at + 1}.nc`));
      entries.push(["curl, regions", lines.join("")]);
    }
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

  /**
   * Return a button that makes an animation, says how far it is, and stops it.
   *
   * @param {HTMLElement} problem where errors are shown
   */
  #animationButton(problem) {
    const button = element(
      "button",
      {
        type: "button",
        "data-save": "gif",
        onclick: async () => {
          if (this.animating) {
            this.animating.abort();
            return;
          }
          problem.replaceChildren();
          const controller = (this.animating = new AbortController());
          try {
            await this.saveAnimation((done, all) => {
              button.textContent = `Stop (${done} / ${all})`;
            }, controller.signal);
          } catch (error) {
            problem.replaceChildren(errorBox(error));
          }
          this.animating = null;
          button.textContent = "GIF";
        },
      },
      "GIF",
    );
    return button;
  }
}
