// Controls of a map: projection, lines, mask of land or ocean.

import { changeState } from "./address.js";
import { choice, element, labelled } from "./element.js";
import { USUAL_LINES } from "./earth_map.js";
import { PROJECTIONS } from "./projections.js";

/** @import { State } from "./address.js" */
/** @import { LineName } from "./earth_map.js" */
/** @import { ProjectionName } from "./projections.js" */

/** @type {[LineName, string][]} */
const LINES = [
  ["coasts", "coasts"],
  ["borders", "borders"],
  ["graticule", "graticule"],
];

/** Controls that change the state by themselves. */
export class MapControls {
  constructor() {
    /** @type {[string, string][]} */
    const projections = Object.entries(PROJECTIONS).map(([name, { label }]) => [name, label]);
    // Where a map is moved to fits its projection; another one begins with all in view.
    this.projection = choice("Projection", [...projections, ["none", "none: by axes"]], "plate", (projection) =>
      changeState({ projection, centre: null, zoom: null }),
    );
    this.boxes = LINES.map(([name, text]) => {
      const input = element("input", { type: "checkbox", name, onchange: () => this.#chooseLines() });
      return { name, input, label: element("label", { class: "tick" }, input, text) };
    });
    this.mask = choice("Hide land or ocean", [["", "nothing"], ["land", "land"], ["ocean", "ocean"]], "", (mask) => changeState({ mask })); // prettier-ignore
    this.lines = labelled("Lines", ...this.boxes.map(({ label }) => label));
    this.hidden = labelled("Hide", this.mask);
    this.chosen = labelled("Projection", this.projection);
  }

  #chooseLines() {
    const chosen = this.boxes.filter(({ input }) => input.checked).map(({ name }) => name);
    changeState({ lines: chosen.join() === USUAL_LINES.join() ? null : chosen.join() || "none" });
  }

  /**
   * Show what a state chooses.
   *
   * @param {State} state
   * @param {ProjectionName | null} name projection that is drawn
   * @param {boolean} canMap whether the variable lies on the earth
   */
  showState(state, name, canMap) {
    this.chosen.hidden = !canMap;
    this.projection.value = name ?? "none";
    this.lines.hidden = this.hidden.hidden = name === null;
    const lines = state.lines?.split(",") ?? USUAL_LINES;
    for (const { name: line, input } of this.boxes) input.checked = lines.includes(line);
    this.mask.value = state.mask ?? "";
  }
}
