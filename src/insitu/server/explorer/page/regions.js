// Regions and points of a picture: drawn over it, kept in the address, and compared as lines in one plot.

import { uPlot } from "./vendor/plotting.js";
import { askArrays, askFile, Latest } from "./api.js";
import { changeState, readState } from "./address.js";
import { saveBlob } from "./downloads.js";
import { element, svgElement } from "./element.js";
import { formatCount, formatDegrees, formatLabel, formatNumber, joinUnits } from "./format.js";
import { withPlaces } from "./line_places.js";
import { errorBox } from "./messages.js";
import { sizeOf } from "./plane.js";
import { positionAxis } from "./position_axis.js";
import { wrapLongitude } from "./projections.js";
import { themeColour } from "./theme.js";

/** @import { AlignedData, Series } from "uplot" */
/** @import { Box, Region } from "./address.js" */
/** @import { Parameters } from "./api.js" */
/** @import { Variable } from "./archive.js" */
/** @import { BinaryAnswer } from "./binary.js" */
/** @import { Places } from "./picture_places.js" */
/** @import { FieldPlane } from "./plane.js" */

const COLOURS = ["#d1495b", "#00798c", "#edae49", "#6a4c93", "#3f8f29", "#8d5524", "#1982c4", "#ff7bac"];
const HEIGHT = 250;
const MOST = 8; // lines that can be told apart

/** @typedef {"move" | "zoom" | "box" | "polygon" | "point"} Mode what a drag or a click does; `move`: of maps */

/** Buttons that choose what a drag draws, the regions over the picture, and their lines and statistics. */
export class Regions {
  #latest = new Latest();
  /** @type {[number, number][]} Vertices of the polygon that is being drawn. */
  #vertices = [];
  /** @type {uPlot | null} */
  #plot = null;
  #shownKey = "";
  /** @type {(() => void) | null} */
  #drawAgain = null;
  /** @type {FieldPlane | null} */
  #plane = null;
  /** @type {"index" | "map" | undefined} What vertices are; undefined: coordinates of the axes. */
  #axes = undefined;
  /** @type {Places | null} Those that were drawn last. */
  #places = null;

  /**
   * @param {string} url
   * @param {Variable} variable
   * @param {() => void} onchange called when what is drawn over the picture changed
   */
  constructor(url, variable, onchange) {
    this.url = url;
    this.variable = variable;
    this.onchange = onchange;
    /** @type {Mode} */
    this.mode = "zoom";
    /** @type {[Mode, string][]} */
    const modes = [
      ["move", "move"],
      ["zoom", "zoom"],
      ["box", "box"],
      ["polygon", "polygon"],
      ["point", "point"],
    ];
    this.buttons = modes.map(([mode, text]) =>
      element(
        "button",
        { type: "button", class: "chip", "aria-pressed": "false", "data-mode": mode, onclick: () => this.setMode(mode) },
        text,
      ),
    );
    this.controls = element(
      "div",
      { class: "control", role: "group", "aria-label": "What drawing over the picture does" },
      element("span", { class: "muted" }, "Draw"),
      ...this.buttons,
    );
    this.chips = element("div", { class: "chips", role: "group", "aria-label": "Dimension of the lines of regions" });
    this.body = element("div", { class: "plot" });
    this.table = element("div", { class: "table-frame" });
    this.element = element(
      "section",
      { class: "card regions", "aria-label": "Regions", hidden: true },
      element(
        "div",
        { class: "card-head" },
        element("h3", {}, "Regions and points"),
        this.chips,
        element("button", { type: "button", onclick: () => changeState({ regions: null }) }, "Remove all"),
      ),
      this.body,
      this.table,
    );
    new ResizeObserver(() => this.#plot?.setSize({ width: this.#width(), height: HEIGHT })).observe(this.body);
    this.buttons[0].hidden = true;
    this.setMode("zoom");
  }

  /**
   * Offer to move the picture, where it is a map.
   *
   * @param {boolean} isMap
   * @param {boolean} hasRows whether the cells lie in rows: else there are no boxes of them to zoom to
   */
  showMap(isMap, hasRows) {
    this.controls.hidden = !isMap && !hasRows;
    const [move, zoom] = this.buttons;
    zoom.hidden = !hasRows;
    if (move.hidden === !isMap) return;
    move.hidden = !isMap;
    if (this.mode === "zoom" || this.mode === "move") this.setMode(isMap ? "move" : "zoom");
  }

  /** @param {Mode} mode */
  setMode(mode) {
    this.mode = mode;
    this.#vertices = [];
    for (const button of this.buttons) button.setAttribute("aria-pressed", String(button.dataset.mode === mode));
    this.onchange();
  }

  /**
   * Add a box of elements; whether it was taken.
   *
   * @param {Box} box
   */
  takeBox(box) {
    if (this.mode !== "box") return false;
    this.#add({ box });
    return true;
  }

  /**
   * Add a polygon that was drawn as a box on a map.
   *
   * @param {[number, number][]} places longitudes and latitudes
   */
  takePolygon(places) {
    if (places.length >= 3) this.#add({ polygon: (this.#places?.ringOf(places) ?? places).map(roundPlace), axes: "map" });
  }

  /**
   * Add a vertex or a point; whether it was taken.
   *
   * @param {[number, number] | null} element_ row and column of the element; null: there is none
   * @param {[number, number] | null} place x and y on the axes, longitude and latitude of a map; null: there are none
   */
  takePoint(element_, place) {
    if (this.mode === "point") {
      if (element_) this.#add({ point: element_ });
    } else if (this.mode === "polygon") {
      if (place) this.#vertices.push(place);
      this.onchange();
    } else return false;
    return true;
  }

  /** End the polygon that is being drawn; whether there was one. */
  finish() {
    if (this.mode !== "polygon" || this.#vertices.length === 0) return false;
    const vertices = this.#vertices;
    this.#vertices = [];
    if (vertices.length < 3) this.onchange();
    else if (this.#axes === "map") this.takePolygon(vertices);
    else this.#add({ polygon: vertices, ...(this.#axes ? { axes: this.#axes } : {}) });
    return true;
  }

  /** @param {Region} region */
  #add(region) {
    changeState({ regions: [...(readState().regions ?? []), region].slice(-MOST) });
  }

  /**
   * Draw the regions over a picture.
   *
   * @param {SVGSVGElement} svg
   * @param {Places} places
   * @param {"index" | "map" | undefined} axes what vertices of polygons are
   */
  draw(svg, places, axes) {
    this.#axes = axes;
    this.#places = places;
    /** @type {(polygon: [number, number][], axes: string | undefined, isClosed: boolean) => [number, number][][]} */
    const lines = (polygon, of, isClosed) => (of === "map" ? places.ofPlaces(polygon, isClosed) : places.ofVertices(polygon, isClosed));
    /** @type {(pieces: [number, number][][], about: Record<string, unknown>, isClosed: boolean) => void} */
    const append = (pieces, about, isClosed) => {
      // What a map cuts has open ends.
      const tag = isClosed && pieces.length === 1 ? "polygon" : "polyline";
      for (const piece of pieces) svg.append(svgElement(tag, { ...about, points: piece.map((pair) => pair.join()).join(" ") }));
    };
    (this.#plane ? (readState().regions ?? []) : []).forEach(({ point, box, polygon, axes: of }, at) => {
      const about = { class: "region", stroke: COLOURS[at % COLOURS.length], "data-region": at };
      if (point) {
        const place = places.ofElement(point);
        if (place) svg.append(svgElement("circle", { ...about, cx: place[0], cy: place[1], r: 5 }));
      } else append(box ? places.ofBox(box) : lines(polygon ?? [], of, true), about, true);
    });
    if (this.#vertices.length) {
      const about = { class: "region", stroke: "#fff" };
      append(lines(this.#vertices, axes, false), about, false);
      for (const [cx, cy] of this.#vertices.flatMap((vertex) => lines([vertex], axes, false)).flat())
        svg.append(svgElement("circle", { ...about, cx, cy, r: 3 }));
    }
  }

  /**
   * Ask for the lines of a state's regions.
   *
   * @param {FieldPlane} plane
   * @param {Region[]} regions
   * @param {string | undefined} chosen dimension of the lines
   */
  async update(plane, regions, chosen) {
    this.#plane = plane;
    const canReduce = ["number", "bool"].includes(this.variable.kind);
    this.element.hidden = regions.length === 0 || !canReduce;
    if (this.element.hidden) {
      this.#shownKey = "";
      return;
    }
    const { rest, along } = lineDimension(plane, chosen);
    const requests = regions.map((region, at) =>
      region.point && along !== null
        ? { route: "line", parameters: lineParameters(this.url, plane, region.point, along) }
        : { route: "region", parameters: regionRequests(this.url, plane, regions, chosen)[at] },
    );
    const key = JSON.stringify(requests);
    this.#drawChips(rest, along);
    if (key === this.#shownKey) return;
    this.#shownKey = key;
    this.element.setAttribute("aria-busy", "true");
    try {
      const answers = await this.#latest.run((signal) =>
        Promise.all(requests.map(({ route, parameters }) => askArrays(route, parameters, signal))),
      );
      if (!answers) return;
      const placed = answers.map(withPlaces);
      this.#drawAgain = () => this.#show(placed, regions, requests, along);
      this.#drawAgain();
    } catch (problem) {
      this.#shownKey = "";
      this.#clear();
      this.table.replaceChildren(errorBox(problem, () => this.update(plane, regions, chosen)));
    }
    this.element.setAttribute("aria-busy", "false");
  }

  /**
   * @param {string[]} dims
   * @param {string | null} along
   */
  #drawChips(dims, along) {
    this.chips.replaceChildren(
      ...dims.map((dim) =>
        element(
          "button",
          { type: "button", class: "chip", "aria-pressed": String(dim === along), onclick: () => changeState({ region_line: dim }) },
          dim,
        ),
      ),
    );
  }

  /**
   * @param {BinaryAnswer[]} answers
   * @param {Region[]} regions
   * @param {{ route: string, parameters: Parameters }[]} requests
   * @param {string | null} along
   */
  #show(answers, regions, requests, along) {
    this.#clear();
    if (along !== null) this.#drawLines(answers, regions, along);
    const units = answers[0].header.units;
    const rows = answers.map((answer, at) => {
      const { header, arrays } = answer;
      const save = (/** @type {string} */ format) =>
        element(
          "button",
          {
            type: "button",
            class: "small",
            onclick: async () => {
              try {
                const file = await askFile("region", { ...requests[at].parameters, format });
                saveBlob(file, `region_${at + 1}.${format === "netcdf" ? "nc" : "csv"}`);
              } catch (problem) {
                this.table.append(errorBox(problem));
              }
            },
          },
          format === "netcdf" ? "NetCDF" : "CSV",
        );
      const mark = element("span", { class: "swatch" });
      mark.style.background = COLOURS[at % COLOURS.length];
      const single = along === null && arrays.std;
      const numbers = single
        ? [arrays.values[0], arrays.std[0], arrays.low[0], arrays.high[0]]
        : [mean(arrays.values), NaN, ...extremes(arrays.low ?? arrays.values, arrays.high ?? arrays.values)];
      return element(
        "tr",
        { "data-region": at },
        element("td", {}, mark, ` ${describeRegion(regions[at])}`),
        element("td", { class: "right" }, header.cells ? formatCount(header.cells) : "1"),
        ...numbers.map((value) => element("td", { class: "right", "data-value": value }, Number.isNaN(value) ? "" : formatNumber(value, 6))),
        element("td", { class: "muted" }, header.weights ?? ""),
        element("td", {}, requests[at].route === "region" ? [save("netcdf"), save("csv")] : null),
        element("td", {}, element("button", { type: "button", class: "small", "aria-label": `Remove region ${at + 1}`, onclick: () => removeRegion(at) }, "×")),
      );
    });
    const head = ["Region", "Cells", along ? `Mean over ${along}` : "Mean", "Std. deviation", "Lowest", "Highest", "Weights", "Download", ""];
    this.table.replaceChildren(
      element(
        "table",
        { class: "region-table" },
        element("caption", { class: "muted small-text" }, `Area-weighted${units ? `, in ${units}` : ""}`),
        element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)))),
        element("tbody", {}, ...rows),
      ),
    );
  }

  /**
   * @param {BinaryAnswer[]} answers
   * @param {Region[]} regions
   * @param {string} along
   */
  #drawLines(answers, regions, along) {
    const side = answers[0].header.position;
    const units = answers[0].header.units ?? "";
    const { divide, isTime, axis: sideAxis } = positionAxis(side);
    // Lines of points may be thinned: positions of all lines together.
    const positions = [...new Set(answers.flatMap(({ arrays }) => Array.from(arrays.position, (value) => value / divide)))].sort((a, b) => a - b);
    const place = new Map(positions.map((position, at) => [position, at]));
    const columns = answers.map(({ arrays }) => {
      /** @type {(number | null | undefined)[]} */
      const column = new Array(positions.length).fill(undefined);
      arrays.position.forEach((/** @type {number} */ position, /** @type {number} */ at) => {
        column[place.get(position / divide) ?? 0] = Number.isFinite(arrays.values[at]) ? arrays.values[at] : null;
      });
      return column;
    });
    /** @type {Series[]} */
    const series = [
      { label: along, value: (_, value) => (value === null ? "–" : formatLabel(value * divide, side.kind, side.units, side.calendar)) },
      ...regions.map((region, at) => ({
        label: describeRegion(region),
        stroke: COLOURS[at % COLOURS.length],
        width: 1.6,
        spanGaps: false,
        points: { show: positions.length < 60, size: 5 },
        value: (/** @type {unknown} */ _, /** @type {number | null} */ value) =>
          value === null || value === undefined ? "–" : joinUnits(formatNumber(value, 6), units),
      })),
    ];
    const axis = { stroke: themeColour("ink-soft"), grid: { stroke: themeColour("line"), width: 1 }, font: "12px system-ui, sans-serif" };
    this.#plot = new uPlot(
      {
        width: this.#width(),
        height: HEIGHT,
        series,
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
        scales: { x: { time: isTime } },
        axes: [
          { ...axis, ...sideAxis },
          { ...axis, size: 74, label: units ? `${this.variable.name} (${units})` : this.variable.name },
        ],
        cursor: { drag: { x: true, y: false } },
      },
      /** @type {AlignedData} */ ([positions, ...columns]),
      this.body,
    );
  }

  #width() {
    return Math.max(220, this.body.clientWidth);
  }

  #clear() {
    this.#plot?.destroy();
    this.#plot = null;
    this.body.replaceChildren();
  }

  /** Draw again in the colours of the theme. */
  recolour() {
    this.#drawAgain?.();
  }

  /** Stop what is under way. */
  close() {
    this.#latest.stop();
    this.#clear();
  }
}

/**
 * Return the dimensions that lines may run along, and the one that they do.
 *
 * @param {FieldPlane} plane
 * @param {string} [chosen]
 */
function lineDimension({ rest, variable }, chosen) {
  const long = rest.filter((dim) => sizeOf(variable, dim) > 1);
  return { rest: long, along: chosen && long.includes(chosen) ? chosen : (long[0] ?? null) };
}

/**
 * Return the parameters of `api/region` for regions; a point is a region of one cell.
 *
 * @param {string} url
 * @param {FieldPlane} plane
 * @param {Region[]} regions
 * @param {string} [chosen] dimension of the lines
 * @returns {Parameters[]}
 */
export function regionRequests(url, plane, regions, chosen) {
  const { along } = lineDimension(plane, chosen);
  const { y, x, rest, index, variable } = plane;
  const others = Object.fromEntries(rest.filter((dim) => dim !== along).map((dim) => [dim, index[dim] ?? 0]));
  return regions.map(({ point, ...region }) => {
    const cell = point ? { box: [point[0], point[0] + 1, point[1], point[1] + 1] } : {};
    return { url, variable: variable.path, y, x, ...region, ...cell, along, index: others };
  });
}

/**
 * @param {string} url
 * @param {FieldPlane} plane
 * @param {[number, number]} point
 * @param {string} along
 * @returns {Parameters}
 */
function lineParameters(url, { y, x, rest, index, variable }, [row, column], along) {
  const others = Object.fromEntries(rest.filter((dim) => dim !== along).map((dim) => [dim, index[dim] ?? 0]));
  return { url, variable: variable.path, dim: along, index: { ...others, ...(y === null ? {} : { [y]: row }), [x]: column } };
}

/**
 * Return a place with the digits that matter.
 *
 * @param {[number, number]} place
 * @returns {[number, number]}
 */
function roundPlace([lon, lat]) {
  return [Number(lon.toFixed(5)), Number(lat.toFixed(5))];
}

/** @param {number} at */
function removeRegion(at) {
  const left = (readState().regions ?? []).filter((_, number) => number !== at);
  changeState({ regions: left.length ? left : null });
}

/** @param {Region} region */
function describeRegion({ point, box, polygon, axes }) {
  if (point) return `point ${point[0]}, ${point[1]}`;
  if (box) return `box ${box[0]}–${box[1] - 1} × ${box[2]}–${box[3] - 1}`;
  if (axes !== "map" || !polygon) return `polygon of ${polygon?.length ?? 0}`;
  /** @type {(side: 0 | 1) => string} */
  const range = (side) => {
    const numbers = polygon.map((place) => place[side]);
    const ends = [Math.min(...numbers), Math.max(...numbers)];
    const [low, high] = ends.map((number) => formatDegrees(side ? number : wrapLongitude(number), side ? "latitude" : "longitude", (value) => value.toFixed(1)));
    return ends[1] - ends[0] >= 360 ? "all around" : `${low} to ${high}`;
  };
  return `polygon within ${range(1)}, ${range(0)}`;
}

/** @param {ArrayLike<number>} values */
function mean(values) {
  const finite = Array.from(values).filter(Number.isFinite);
  return finite.length ? finite.reduce((sum, value) => sum + value, 0) / finite.length : NaN;
}

/**
 * @param {ArrayLike<number>} low
 * @param {ArrayLike<number>} high
 */
function extremes(low, high) {
  const [lows, highs] = [low, high].map((values) => Array.from(values).filter(Number.isFinite));
  return [
    lows.reduce((least, value) => Math.min(least, value), Infinity),
    highs.reduce((most, value) => Math.max(most, value), -Infinity),
  ].map((value) => (Number.isFinite(value) ? value : NaN));
}
