// Overview of a group: totals, what cannot be read, variables, dimensions, attributes.

import { formatState } from "./address.js";
import { element } from "./element.js";
import { formatBytes, formatCount, plural } from "./format.js";
import { hasThumbnail, Thumbnails } from "./thumbnails.js";
import { stillView } from "./view.js";

/** @import { Archive, Attribute, Group, Variable } from "./archive.js" */

/**
 * Return a table of attributes; values are plain text.
 *
 * @param {Attribute[]} attributes
 */
export function attributeTable(attributes) {
  if (!attributes.length) return element("p", { class: "muted" }, "No attributes.");
  return element(
    "table",
    { class: "attributes" },
    element(
      "tbody",
      {},
      attributes.map(({ name, value }) =>
        element("tr", {}, element("th", { scope: "row" }, name), element("td", { class: "break" }, value)),
      ),
    ),
  );
}

/**
 * Return the overview of one group of an archive.
 *
 * @param {Archive} archive
 * @param {Group} group
 */
export function groupPage(archive, group) {
  const isRoot = !group.path.replace(/\//g, "");
  const facts = isRoot
    ? [
        ...(archive.format ? [["Format", archive.format]] : []),
        ["Files", formatCount(archive.files ?? 1)],
        ["Stored", formatBytes(archive.stored_bytes)],
        ["As arrays", formatBytes(archive.virtual_bytes)],
      ]
    : [];
  const notes = isRoot
    ? (archive.notes ?? []).map(({ path, text }) => element("li", {}, element("code", {}, path), ` ${text}`))
    : [];
  const problems = (group.problems ?? []).map(({ name, reason }) =>
    element("li", {}, element("code", {}, name), ` ${reason}`),
  );
  const thumbnails = new Thumbnails();
  const main = element(
    "main",
    { class: "group-page", id: "main" },
    element("h1", { class: "break" }, isRoot ? archive.url : group.path),
    element(
      "dl",
      { class: "tiles" },
      facts.map(([name, text]) => element("div", {}, element("dt", {}, name), element("dd", {}, text ?? "–"))),
    ),
    problems.length
      ? element(
          "section",
          { class: "card problems" },
          element("h3", {}, "What cannot be read"),
          element("ul", {}, problems),
        )
      : null,
    notes.length ? element("section", { class: "card" }, element("h3", {}, "Notes"), element("ul", {}, notes)) : null,
    element(
      "section",
      { class: "card" },
      element("h3", {}, plural(group.variables.length, "variable")),
      variableTable(archive, group.variables, thumbnails),
    ),
    group.dimensions?.length
      ? element(
          "section",
          { class: "card" },
          element("h3", {}, "Dimensions"),
          element(
            "p",
            { class: "dimension-list" },
            group.dimensions.map(({ name, size }) =>
              element("span", { class: "pill" }, `${name} ${formatCount(size)}`),
            ),
          ),
        )
      : null,
    element("section", { class: "card" }, element("h3", {}, "Attributes"), attributeTable(group.attributes)),
  );
  return { ...stillView(main), close: () => thumbnails.close() };
}

/**
 * @param {Archive} archive
 * @param {Variable[]} variables
 * @param {Thumbnails} thumbnails
 */
function variableTable(archive, variables, thumbnails) {
  const { url, format } = archive;
  const head = ["Name", "Dimensions", "Type", "Units", "Chunks", "Codecs", "Stored", "As array"];
  const rows = variables.map((variable) =>
    element(
      "tr",
      {},
      element(
        "td",
        { class: "thumbnail-cell" },
        hasThumbnail(variable) && !variable.is_coordinate
          ? thumbnails.frame(`${url} ${variable.path} ${variable.stored_bytes}`, async () => ({ url, format, variable }))
          : "",
      ),
      element(
        "td",
        {},
        element("a", { href: formatState({ url: archive.url, variable: variable.path }) }, variable.name),
        variable.long_name ? element("div", { class: "muted small-text" }, variable.long_name) : null,
      ),
      element("td", {}, variable.dims.map((dim, at) => `${dim} ${formatCount(variable.shape[at])}`).join(" × ")),
      element("td", {}, variable.dtype),
      element("td", {}, variable.units ?? ""),
      element("td", {}, variable.unreadable ? variable.unreadable : (variable.chunk_shape?.join(" × ") ?? "vary")),
      element("td", {}, (variable.codecs ?? []).join(" | ")),
      element("td", { class: "right" }, formatBytes(variable.stored_bytes)),
      element("td", { class: "right" }, formatBytes(variable.virtual_bytes)),
    ),
  );
  return element(
    "div",
    { class: "table-frame" },
    element(
      "table",
      {},
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          element("td", {}),
          head.map((text) => element("th", { scope: "col" }, text)),
        ),
      ),
      element("tbody", {}, rows),
    ),
  );
}
