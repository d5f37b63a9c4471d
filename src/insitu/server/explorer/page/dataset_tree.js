// Tree of the groups and variables of an archive, with a filter.

import { changeState, formatState } from "./address.js";
import { choice, element, labelled } from "./element.js";
import { formatBytes, plural } from "./format.js";

/** @import { Child } from "./element.js" */
/** @import { Archive, Group, Variable } from "./archive.js" */

/** Side panel: what the archive is, and its variables as links. */
export class DatasetTree {
  /** @param {Archive} archive */
  constructor(archive) {
    this.archive = archive;
    this.filter = element("input", {
      type: "search",
      placeholder: "Filter variables",
      "aria-label": "Filter variables",
      oninput: () => this.#applyFilter(),
    });
    this.tree = element("nav", { class: "tree", "aria-label": "Variables" }, this.#branch(""));
    this.element = element(
      "aside",
      { class: "side", "aria-label": "Dataset" },
      element("div", { class: "side-content" }, this.#summary(), this.filter, this.tree),
    );
  }

  #summary() {
    const { archive } = this;
    // Of a Zarr store nobody has counted its objects: they may be a few of those that it could have.
    const files = archive.stored_bytes && archive.files ? plural(archive.files, "file") : null;
    const facts = [archive.format, files].filter(Boolean).join(" · ");
    const stored = archive.stored_bytes ? `${formatBytes(archive.stored_bytes)} stored, ` : "";
    const sizes = `${stored}${formatBytes(archive.virtual_bytes)} as arrays`;
    return element(
      "div",
      { class: "summary" },
      element(
        "a",
        {
          class: "title break",
          href: formatState({ url: archive.url, group: "/" }),
          "data-group": "",
          title: archive.url,
        },
        shortName(archive.url),
      ),
      element("div", { class: "muted small-text" }, facts),
      element("div", { class: "muted small-text" }, sizes),
      archive.forecasts.length ? labelled("Forecasts", this.#forecastChoice()) : null,
      archive.notes?.length
        ? element("div", { class: "warning small-text" }, plural(archive.notes.length, "note"))
        : null,
    );
  }

  #forecastChoice() {
    const { forecasts, url } = this.archive;
    const options = forecasts.map((view) => /** @type {[string, string]} */ ([view.url, view.text]));
    // Positions along other axes, and boxes, mean the same in all views.
    return choice("Forecasts that are shown", options, url, (chosen) => changeState({ url: chosen, point: null, line: null }));
  }

  /**
   * Return the variables of a group, and its subgroups below them.
   *
   * @param {string} path
   * @returns {Child[]}
   */
  #branch(path) {
    /** @param {Group} group */
    const clean = (group) => group.path.replace(/^\/+|\/+$/g, "");
    const inside = this.archive.groups.filter(
      (group) => clean(group) && clean(group).split("/").slice(0, -1).join("/") === path,
    );
    const here = this.archive.group(path);
    return [
      here ? this.#variables(here) : null,
      ...inside.map((group) =>
        // The link lies beside the summary and not in it: what folds a branch must not contain another control.
        element(
          "div",
          { class: "branch" },
          element(
            "a",
            { href: formatState({ url: this.archive.url, group: `/${clean(group)}` }), "data-group": clean(group) },
            clean(group).split("/").at(-1),
          ),
          element(
            "details",
            { open: true },
            element("summary", { "aria-label": `Contents of ${clean(group)}` }),
            ...this.#branch(clean(group)),
          ),
        ),
      ),
    ];
  }

  /** @param {Group} group */
  #variables(group) {
    const links = [...group.variables]
      .sort((one, other) => Number(one.is_coordinate) - Number(other.is_coordinate))
      .map((variable) => this.#variable(variable));
    const problems = (group.problems ?? []).map(({ name, reason }) =>
      element(
        "li",
        { class: "problem", title: reason },
        element("span", { class: "name" }, name),
        element("span", { class: "reason" }, reason),
      ),
    );
    return links.length || problems.length ? element("ul", {}, links, problems) : null;
  }

  /** @param {Variable} variable */
  #variable(variable) {
    const dims = variable.dims.length ? variable.dims.join(" · ") : "scalar";
    return element(
      "li",
      {
        class: variable.is_coordinate ? "coordinate" : null,
        "data-name": `${variable.path} ${variable.long_name ?? ""}`.toLowerCase(),
      },
      element(
        "a",
        {
          href: formatState({ url: this.archive.url, variable: variable.path }),
          "data-variable": variable.path,
          title: variable.long_name || variable.path,
        },
        element("span", { class: "name" }, variable.name),
        element("span", { class: "dims" }, variable.unreadable ? "cannot be read" : dims),
      ),
    );
  }

  #applyFilter() {
    const text = this.filter.value.trim().toLowerCase();
    for (const item of /** @type {NodeListOf<HTMLElement>} */ (this.tree.querySelectorAll("li[data-name]")))
      item.hidden = !item.dataset.name?.includes(text);
    for (const group of this.tree.querySelectorAll("details"))
      group.hidden = text !== "" && !group.querySelector("li[data-name]:not([hidden])");
  }

  /**
   * Mark what is shown.
   *
   * @param {Variable | undefined} variable
   * @param {string} group
   */
  mark(variable, group) {
    for (const link of this.element.querySelectorAll("a")) {
      const isHere = variable
        ? link.dataset.variable === variable.path
        : link.dataset.group !== undefined && link.dataset.group === group;
      if (!isHere) link.removeAttribute("aria-current");
      else if (!link.hasAttribute("aria-current")) {
        link.setAttribute("aria-current", "page");
        requestAnimationFrame(() => link.scrollIntoView({ block: "nearest" }));
      }
    }
  }
}

/**
 * Return the last part of a path or URL, or the pattern.
 *
 * @param {string} url
 */
export function shortName(url) {
  const parts = url.split("/").filter(Boolean);
  return parts.slice(/[*?]/.test(parts.at(-1) ?? "") ? -2 : -1).join("/") || url;
}
