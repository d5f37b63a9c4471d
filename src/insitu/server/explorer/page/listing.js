// List of archives: folders, files and stores under the server's roots, with a search by name.

import { askJson, Latest } from "./api.js";
import { changeState, formatState } from "./address.js";
import { openArchive } from "./archive.js";
import { element, icon } from "./element.js";
import { formatBytes, plural, shortenTime } from "./format.js";
import { errorBox, LoadingBar } from "./messages.js";
import { hasThumbnail, Thumbnails } from "./thumbnails.js";

/** @import { State } from "./address.js" */

/**
 * One line of a listing.
 *
 * @typedef {object} Entry
 * @property {string} name
 * @property {string} url
 * @property {"folder" | "archive"} kind
 * @property {string | null} format
 * @property {number | null} bytes
 * @property {string | null} modified
 */

/**
 * Answer of `api/list`.
 *
 * @typedef {object} ListAnswer
 * @property {string | null} folder null: the roots
 * @property {{ name: string, url: string }[]} parents
 * @property {Entry[]} entries
 * @property {boolean} truncated
 * @property {string | null} combined pattern of the files that may be one dataset
 */

/** @type {{ key: "name" | "format" | "bytes" | "modified", text: string, className: string | null }[]} */
const COLUMNS = [
  { key: "name", text: "Name", className: null },
  { key: "format", text: "Format", className: null },
  { key: "bytes", text: "Size", className: "right" },
  { key: "modified", text: "Changed", className: "when" },
];

const SMALL = 8_000_000; // bytes of a file of which all may be read for a small picture
const LARGE = 2_000_000_000; // of a file on the server's disk that tells in few bytes what it holds
const COMPACT = ["netcdf", "hdf5", "netcdf3", "tiff", "fits"];

const TYPING = 250; // ms of quiet before a search begins

/** Page that lists one folder, or what a search found below it. */
export class Listing {
  #latest = new Latest();
  /** @type {string | null} */
  #requestKey = null;
  /** @type {ListAnswer | null} */
  #answer = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  constructor() {
    this.loading = new LoadingBar();
    this.thumbnails = new Thumbnails();
    this.search = element("input", {
      type: "search",
      id: "search",
      placeholder: "Search by name",
      "aria-label": "Search archives by name",
      oninput: () => {
        clearTimeout(this.#timer);
        this.#timer = setTimeout(() => changeState({ search: this.search.value.trim() }, { replace: true }), TYPING);
      },
    });
    this.path = element("nav", { class: "crumbs", "aria-label": "Folder" });
    this.body = element("div", {});
    const input = element("input", {
      type: "text",
      id: "open-url",
      name: "url",
      placeholder: "/data/archive/*.nc, s3://bucket/store.zarr …",
      autocomplete: "off",
      spellcheck: "false",
    });
    this.open = element(
      "form",
      {
        class: "open-form",
        onsubmit: (event) => {
          event.preventDefault();
          if (input.value.trim()) changeState({ url: input.value.trim() }, { fresh: true });
        },
      },
      element("label", { for: "open-url" }, "Open a path, a pattern or a URL"),
      input,
      element("button", { type: "submit" }, "Open"),
    );
    this.element = element(
      "main",
      { class: "listing", id: "main" },
      element("div", { class: "page-head" }, element("h1", {}, "Archives"), this.search),
      this.path,
      this.loading.element,
      this.body,
      this.open,
    );
  }

  /**
   * Show the folder and the search of a state.
   *
   * @param {State} state
   */
  async update(state) {
    if (document.activeElement !== this.search) this.search.value = state.search ?? "";
    const parameters = { folder: state.folder, search: state.search };
    const key = JSON.stringify(parameters);
    if (key === this.#requestKey) {
      if (this.#answer) this.#draw(this.#answer, state);
      return;
    }
    this.#answer = null;
    this.#requestKey = key;
    this.loading.show("Listing");
    try {
      const answer = await this.#latest.run((signal) => askJson("list", parameters, signal));
      if (!answer) return;
      this.#answer = answer;
      this.#draw(answer, state);
    } catch (problem) {
      this.#requestKey = null;
      this.body.replaceChildren(errorBox(problem, () => this.update(state)));
    }
    this.loading.hide();
  }

  /**
   * @param {ListAnswer} answer
   * @param {State} state
   */
  #draw({ folder, parents, entries, truncated, combined }, state) {
    /** @type {HTMLElement[]} */
    const crumbs = [element("a", { href: "#" }, icon("home"), "All")];
    for (const parent of parents) crumbs.push(element("a", { href: formatState({ folder: parent.url }) }, parent.name));
    if (folder && folder !== parents.at(-1)?.url)
      crumbs.push(element("span", { "aria-current": "page" }, folder.split("/").filter(Boolean).at(-1) ?? folder));
    this.path.replaceChildren(...crumbs);
    const parent = folder ? (parents.at(-1)?.url ?? "") : null;
    const up =
      parent === null
        ? null
        : element(
            "tr",
            {},
            element("td", {}),
            element("td", {}, element("a", { class: "up", href: parent ? formatState({ folder: parent }) : "#" }, icon("back"), "Up")),
            ...COLUMNS.slice(1).map(({ className }) => element("td", { class: className })),
          );
    this.thumbnails.close();
    this.thumbnails = new Thumbnails();
    const rows = sortEntries(entries, state.sort).map((entry) => {
      const isFolder = entry.kind === "folder";
      const link = element(
        "a",
        { href: formatState(isFolder ? { folder: entry.url } : { url: entry.url }), title: entry.url },
        icon(isFolder ? "folder" : "cube"),
        entry.name,
      );
      return element(
        "tr",
        {},
        element("td", { class: "thumbnail-cell" }, isCheap(entry) ? this.#thumbnail(entry) : ""),
        element("td", { class: "break" }, link),
        element("td", { class: "muted" }, isFolder ? "folder" : (entry.format ?? "")),
        element("td", { class: "right" }, entry.bytes === null ? "" : formatBytes(entry.bytes)),
        element("td", { class: "muted when" }, formatModified(entry.modified)),
      );
    });
    const head = element(
      "tr",
      {},
      element("td", {}),
      COLUMNS.map(({ key, text, className }) => {
        const order = state.sort === key ? "ascending" : state.sort === `-${key}` ? "descending" : null;
        const next = order === null ? key : order === "ascending" ? `-${key}` : null;
        const button = element(
          "button",
          { type: "button", class: "quiet sort", onclick: () => changeState({ sort: next }, { replace: true }) },
          text,
          order ? (order === "ascending" ? " ▲" : " ▼") : "",
        );
        return element("th", { scope: "col", class: className, "aria-sort": order }, button);
      }),
    );
    this.body.replaceChildren(
      combined
        ? element(
            "p",
            { class: "combined" },
            element(
              "a",
              { class: "button primary", href: formatState({ url: combined }) },
              "Open all files here as one dataset",
            ),
            element("code", { class: "muted" }, combined),
          )
        : "",
      rows.length || up
        ? element("table", { class: "entries" }, element("thead", {}, head), element("tbody", {}, up, rows))
        : "",
      rows.length
        ? ""
        : element(
            "p",
            { class: "muted" },
            state.search ? `No name contains “${state.search}”.` : "Nothing here that can be opened.",
          ),
      truncated
        ? element(
            "p",
            { class: "muted" },
            `Only the first ${plural(rows.length, "entry").replace("entrys", "entries")} are shown: search by name for others.`,
          )
        : "",
    );
  }

  /** @param {Entry} entry */
  #thumbnail({ url, bytes, modified }) {
    return this.thumbnails.frame(`${url} ${bytes} ${modified}`, async (signal) => {
      const archive = await openArchive(url, signal);
      const variable = archive.firstVariable;
      return variable && hasThumbnail(variable) ? { url, format: archive.format, variable } : null;
    });
  }

  recolour() {}

  close() {
    this.#latest.stop();
    this.thumbnails.close();
  }
}

/**
 * Return whether it takes little to look into an archive.
 *
 * @param {Entry} entry
 */
function isCheap({ kind, url, format, bytes }) {
  if (kind !== "archive" || bytes === null || format === null) return false;
  const isLocal = !url.includes("://") && !url.includes("::");
  return bytes <= SMALL || (isLocal && bytes <= LARGE && COMPACT.includes(format));
}

/**
 * Return entries in the order of a column; what has nothing there comes last.
 *
 * @param {Entry[]} entries
 * @param {string} [sort] the column, with a minus before it for the other direction; without it, as they came
 */
function sortEntries(entries, sort) {
  const column = COLUMNS.find(({ key }) => key === sort?.replace("-", ""));
  if (!column || !sort) return entries;
  const sign = sort.startsWith("-") ? -1 : 1;
  return [...entries].sort((one, other) => {
    const [a, b] = [one[column.key], other[column.key]];
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    const order =
      typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
    return sign * order;
  });
}

/** @param {string | null} modified */
function formatModified(modified) {
  return modified === null ? "" : shortenTime(modified).slice(0, 16);
}
